package layertest

import "unicode/utf16"

// Quarter is the estimator utf16/4 of SEMANTICS 1.2.
func Quarter(s string) int { return (len(utf16.Encode([]rune(s))) + 3) / 4 }
