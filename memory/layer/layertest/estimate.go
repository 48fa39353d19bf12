package layertest

import "unicode/utf16"

// Quarter counts a token for every four UTF-16 code units, rounded up.
func Quarter(s string) int { return (len(utf16.Encode([]rune(s))) + 3) / 4 }
