package config

import (
	"fmt"
	"strings"

	"github.com/spf13/pflag"

	"github.com/felixlike/felixlike/internal/nearest"
)

// setFlag is the flag that takes any setting by its key.
const setFlag = "set"

// AddSetFlag defines --config and --set KEY=VALUE, which may be repeated. The flags of the settings work as with AddFlags, and are not in the help: it would
// be a list of all settings.
func AddSetFlag(flags *pflag.FlagSet) {
	AddFlags(flags)
	defaults := Defaults()
	for _, s := range settings(&defaults) {
		_ = flags.MarkHidden(FlagName(s.key)) // the flag is there: it was just made
	}
	flags.StringArray(setFlag, nil, "set a setting by `KEY=VALUE`, for example serviceProxy=full (docs/reference/settings.md); may be repeated")
}

// loadSet takes the values of --set. The last one of a key counts.
func (e *Effective) loadSet(flags *pflag.FlagSet) (all []error) {
	if flags.Lookup(setFlag) == nil {
		return nil
	}
	given, err := flags.GetStringArray(setFlag)
	if err != nil {
		return []error{err}
	}
	for _, text := range given {
		key, value, err := Pair(text)
		for _, s := range settings(&e.Config) {
			if s.key == key && err == nil {
				err = s.set(value)
				e.Origin[key] = FromFlag
			}
		}
		if err != nil {
			all = append(all, fmt.Errorf("--%s %s: %w", setFlag, text, err))
		}
	}
	return all
}

// Pair splits KEY=VALUE, and checks that a setting has the key.
func Pair(text string) (key, value string, err error) {
	key, value, ok := strings.Cut(text, "=")
	if !ok {
		return "", "", fmt.Errorf("%q: want KEY=VALUE", text)
	}
	defaults := Defaults()
	all := keys(&defaults)
	for _, known := range all {
		if key == known {
			return key, value, nil
		}
	}
	return "", "", fmt.Errorf("unknown setting %q%s", key, nearest.Hint(key, all))
}

// DefaultOf returns the default of a setting by its key, as text.
func DefaultOf(key string) string {
	defaults := Defaults()
	for _, s := range settings(&defaults) {
		if s.key == key {
			return fmt.Sprint(s.value.Interface())
		}
	}
	return ""
}
