package main

import (
	"errors"
	"fmt"
	"log/slog"
	"math"
	"os"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/go-viper/mapstructure/v2"

	"remora/memory/layer"
	"remora/secret"
)

// strict configures decoding without conversions: a number is not accepted as text, nor text as a number.
func strict(c *mapstructure.DecoderConfig) {
	c.WeaklyTypedInput = false
	c.ErrorUnused = true
	c.DecodeHook = mapstructure.DecodeHookFuncType(convert)
}

// decodeEntry fills into, a pointer to a struct that holds its defaults, from one entry of a list.
func decodeEntry(path string, entry map[string]any, into any) problems {
	conf := &mapstructure.DecoderConfig{Result: into}
	strict(conf)
	d, err := mapstructure.NewDecoder(conf)
	if err != nil {
		panic(fmt.Sprintf("BUG: decode into %T: %v", into, err))
	}
	var found problems
	found.addDecodeErrors(path, d.Decode(entry))
	return found
}

func wanted(t reflect.Type) string {
	switch t.Kind() {
	case reflect.String:
		return "text"
	case reflect.Bool:
		return "true or false"
	case reflect.Struct, reflect.Map:
		return "a mapping"
	case reflect.Slice:
		return "a list"
	default:
		return "a number"
	}
}

// convert is the decode hook. It parses durations, sizes, lists and secrets.
func convert(from, to reflect.Type, v any) (any, error) {
	if to == reflect.TypeFor[time.Duration]() {
		return toDuration(v)
	}
	if to == reflect.TypeFor[slog.Level]() && from.Kind() != reflect.String {
		return nil, fmt.Errorf("want debug, info, warn or error, have %s", layer.Describe(v)) // slog also accepts numbers, which are undocumented here
	}
	switch v := v.(type) {
	case string:
		return fromText(v, to)
	case float64:
		if isInt(to.Kind()) {
			if v != math.Trunc(v) || math.Abs(v) > 1<<53 {
				return nil, fmt.Errorf("want a whole number, have %v", v)
			}
			return int64(v), nil
		}
	}
	if to.Kind() == reflect.Slice && from.Kind() != reflect.Slice {
		return nil, fmt.Errorf("want a list, have %s%s", layer.Describe(v), listHint(v))
	}
	return v, nil
}

// fromText parses a text as another type: environment variables are always text.
func fromText(s string, to reflect.Type) (any, error) {
	switch {
	case to == reflect.TypeFor[secret.String]():
		return readSecret(s)
	case to == reflect.TypeFor[slog.Level]():
		return parseLevel(s)
	case isInt(to.Kind()):
		return parseSize(s)
	case to.Kind() == reflect.Bool:
		b, err := strconv.ParseBool(s)
		if err != nil {
			return nil, fmt.Errorf("want true or false, have %q", s)
		}
		return b, nil
	case to.Kind() == reflect.Float64:
		f, err := strconv.ParseFloat(s, 64)
		if err != nil {
			return nil, fmt.Errorf("want a number, have %q", s)
		}
		return f, nil
	case to == reflect.TypeFor[[]string]():
		return splitList(s), nil
	case to.Kind() == reflect.Slice:
		return nil, errors.New("want a list, have text")
	}
	return s, nil
}

func isInt(k reflect.Kind) bool { return reflect.Int <= k && k <= reflect.Uint64 }

// splitList parses a list in one line: "a, b".
func splitList(s string) []string {
	list := []string{}
	for one := range strings.SplitSeq(s, ",") {
		if one = strings.TrimSpace(one); one != "" {
			list = append(list, one)
		}
	}
	return list
}

func parseLevel(s string) (slog.Level, error) {
	for _, l := range []slog.Level{slog.LevelDebug, slog.LevelInfo, slog.LevelWarn, slog.LevelError} {
		if strings.EqualFold(s, l.String()) {
			return l, nil
		}
	}
	return 0, fmt.Errorf("want debug, info, warn or error, have %q", s)
}

// largeDuration matches durations whose form is right. Of these, time.ParseDuration refuses only those that are too large.
var largeDuration = layer.Lazily(`^[0-9]+(\.[0-9]*)?(ns|us|µs|ms|s|m|h)$`)

// toDuration parses a duration. The unit is required: Go would read 250 as nanoseconds, an operator would not.
func toDuration(v any) (any, error) {
	var d time.Duration
	switch v := v.(type) {
	case time.Duration:
		d = v
	case string:
		var err error
		if d, err = time.ParseDuration(v); err != nil && largeDuration().MatchString(v) {
			return nil, fmt.Errorf("%q is too large", v)
		}
		if err != nil {
			return nil, fmt.Errorf("want a duration with its unit, such as 250ms or 10m, have %q", v)
		}
	case int, float64: // the latter from JSON
		if v != 0 && v != 0.0 {
			return nil, fmt.Errorf("want a duration with its unit, such as 250ms or 10m, have %v", v)
		}
	default:
		return nil, fmt.Errorf("want a duration with its unit, such as 250ms or 10m, have %s", layer.Describe(v))
	}
	if d < 0 {
		return nil, fmt.Errorf("want a duration of zero or more, have %s", d)
	}
	return d, nil
}

// parseSize parses a whole number, with an optional unit of bytes: 64MiB, 10 GB, 512.
func parseSize(s string) (int64, error) {
	units := []struct {
		name  string
		bytes int64
	}{
		{"KiB", 1 << 10},
		{"MiB", 1 << 20},
		{"GiB", 1 << 30},
		{"TiB", 1 << 40},
		{"kB", 1e3},
		{"KB", 1e3},
		{"MB", 1e6},
		{"GB", 1e9},
		{"TB", 1e12},
		{"B", 1},
		{"", 1},
	}
	for _, u := range units {
		digits, ok := strings.CutSuffix(strings.TrimSpace(s), u.name)
		if !ok {
			continue
		}
		n, err := strconv.ParseInt(strings.TrimSpace(digits), 10, 64)
		if err != nil {
			break
		}
		if n > math.MaxInt64/u.bytes || n < math.MinInt64/u.bytes {
			return 0, fmt.Errorf("%q is too large", s)
		}
		return n * u.bytes, nil
	}
	return 0, fmt.Errorf("want a whole number, or a size such as 64MiB, have %q", s)
}

// maxSecret is larger than any key, in bytes. It bounds the memory that a wrong path can cost.
const maxSecret = 64 << 10

// byteOrderMark begins files that some editors on Windows write.
const byteOrderMark = "\ufeff"

// readSecret returns a secret: s itself, or for "file:PATH" the content of the file without its line end.
func readSecret(s string) (secret.String, error) {
	path, ok := strings.CutPrefix(s, "file:")
	if !ok {
		return secret.String(s), nil
	}
	info, err := os.Stat(path)
	if err != nil {
		return "", fmt.Errorf("read secret: %w", err)
	}
	if !info.Mode().IsRegular() || info.Size() > maxSecret {
		return "", fmt.Errorf("read secret %s: want a regular file of at most %d bytes", path, maxSecret)
	}
	data, err := os.ReadFile(path) //nolint:gosec // the operator names the file
	if err != nil {
		return "", fmt.Errorf("read secret: %w", err)
	}
	key := strings.TrimRight(strings.TrimPrefix(string(data), byteOrderMark), "\r\n")
	if key == "" {
		return "", fmt.Errorf("read secret %s: file is empty", path)
	}
	return secret.String(key), nil
}
