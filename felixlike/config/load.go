package config

import (
	"fmt"
	"os"
	"reflect"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/spf13/pflag"
	"sigs.k8s.io/yaml"
)

// Origins of a setting.
const (
	FromDefault     = "default"
	FromFile        = "file"
	FromEnvironment = "environment"
	FromFlag        = "flag"
)

// Effective is a validated configuration with the origin of each setting, by
// key.
type Effective struct {
	Config
	Origin map[string]string
}

// setting is one field of Config.
type setting struct {
	key, help string
	value     reflect.Value
}

func settings(c *Config) []setting {
	v := reflect.ValueOf(c).Elem()
	all := make([]setting, v.NumField())
	for i := range all {
		tag := v.Type().Field(i).Tag
		all[i] = setting{key: tag.Get("json"), help: tag.Get("help"), value: v.Field(i)}
	}
	return all
}

// AddFlags defines a flag for every setting, and --config for the file.
func AddFlags(flags *pflag.FlagSet) {
	defaults := Defaults()
	for _, s := range settings(&defaults) {
		flags.String(FlagName(s.key), fmt.Sprint(s.value.Interface()), s.help+" (environment "+EnvName(s.key)+")")
	}
	flags.String("config", "", "configuration file ("+APIVersion+" "+Kind+")")
}

// Load merges defaults, the file that --config names, the environment ("K=V"
// strings) and the flags that were set, in rising order of precedence.
func Load(flags *pflag.FlagSet, environ []string) (*Effective, error) {
	e := &Effective{Config: Defaults(), Origin: map[string]string{}}
	for _, s := range settings(&e.Config) {
		e.Origin[s.key] = FromDefault
	}
	if path, err := flags.GetString("config"); err == nil && path != "" {
		if err := e.loadFile(path); err != nil {
			return nil, err
		}
	}
	if err := e.loadEnvironment(environ); err != nil {
		return nil, err
	}
	for _, s := range settings(&e.Config) {
		if f := flags.Lookup(FlagName(s.key)); f != nil && f.Changed {
			if err := s.set(f.Value.String()); err != nil {
				return nil, fmt.Errorf("flag --%s: %w", f.Name, err)
			}
			e.Origin[s.key] = FromFlag
		}
	}
	if e.NodeName == "" {
		name, err := os.Hostname()
		if err != nil {
			return nil, fmt.Errorf("nodeName: not set, and no host name: %w", err)
		}
		e.NodeName = name
	}
	if err := e.validate(); err != nil {
		return nil, fmt.Errorf("configuration: %w", err)
	}
	return e, nil
}

func (e *Effective) loadFile(path string) error {
	data, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("configuration file: %w", err)
	}
	var values map[string]any
	if err := yaml.UnmarshalStrict(data, &values); err != nil {
		return fmt.Errorf("configuration file %s: %w", path, err)
	}
	if values["apiVersion"] != APIVersion || values["kind"] != Kind {
		return fmt.Errorf("configuration file %s: apiVersion and kind must be %s and %s", path, APIVersion, Kind)
	}
	delete(values, "apiVersion")
	delete(values, "kind")
	flatten(values)
	for _, s := range settings(&e.Config) {
		v, ok := values[s.key]
		if !ok {
			continue
		}
		text, err := s.text(v)
		if err == nil {
			err = s.set(text)
		}
		if err != nil {
			return fmt.Errorf("configuration file %s: %s: %w", path, s.key, err)
		}
		e.Origin[s.key] = FromFile
		delete(values, s.key)
	}
	for key := range values {
		return fmt.Errorf("configuration file %s: unknown setting %q", path, key)
	}
	return nil
}

// flatten turns a section's keys into keys with a dot: {iptables: {variant: nft}} is iptables.variant.
func flatten(values map[string]any) {
	for section, inner := range values {
		settings, ok := inner.(map[string]any)
		if !ok {
			continue
		}
		delete(values, section)
		for key, value := range settings {
			values[section+"."+key] = value
		}
	}
}

func (e *Effective) loadEnvironment(environ []string) error {
	byName := map[string]setting{}
	for _, s := range settings(&e.Config) {
		byName[EnvName(s.key)] = s
	}
	for _, kv := range environ {
		name, value, _ := strings.Cut(kv, "=")
		if !strings.HasPrefix(name, envPrefix) || serviceLink(name) {
			continue
		}
		s, ok := byName[name]
		if !ok {
			return fmt.Errorf("environment: unknown setting %s", name)
		}
		if err := s.set(value); err != nil {
			return fmt.Errorf("environment: %s: %w", name, err)
		}
		e.Origin[s.key] = FromEnvironment
	}
	return nil
}

// text returns a value of the file as set takes it. The file's types are
// strict: null, or a list for a name, is a mistake and not a text.
func (s setting) text(value any) (string, error) {
	want := "a string"
	switch s.value.Interface().(type) {
	case bool:
		if b, ok := value.(bool); ok {
			return strconv.FormatBool(b), nil
		}
		want = "true or false"
	case int:
		if n, ok := value.(float64); ok {
			return strconv.FormatFloat(n, 'f', -1, 64), nil
		}
		want = "a whole number"
	case Prefixes:
		if text, ok := listed(value); ok {
			return text, nil
		}
		want = "a list of prefixes"
	default:
		if text, ok := value.(string); ok {
			return text, nil
		}
	}
	return "", fmt.Errorf("%v: must be %s", value, want)
}

// listed returns a list of strings as one text with commas.
func listed(value any) (string, bool) {
	all, ok := value.([]any)
	texts := make([]string, len(all))
	for i, v := range all {
		if texts[i], ok = v.(string); !ok {
			return "", false
		}
	}
	if text, one := value.(string); one {
		return text, true
	}
	return strings.Join(texts, ","), ok
}

func (s setting) set(text string) error {
	switch s.value.Interface().(type) {
	case string:
		s.value.SetString(text)
	case bool:
		b, err := strconv.ParseBool(text)
		if err != nil {
			return fmt.Errorf("%q is neither true nor false", text)
		}
		s.value.SetBool(b)
	case int:
		n, err := strconv.Atoi(text)
		if err != nil {
			return fmt.Errorf("%q is not a whole number", text)
		}
		s.value.SetInt(int64(n))
	case Duration:
		d, err := time.ParseDuration(text)
		if err != nil {
			return fmt.Errorf("%q is not a duration such as 90s", text)
		}
		s.value.SetInt(int64(d))
	case Prefixes:
		all, err := parsePrefixes(text)
		if err != nil {
			return err
		}
		s.value.Set(reflect.ValueOf(all))
	default:
		return fmt.Errorf("cannot set a %s", s.value.Type())
	}
	return nil
}

const envPrefix = "FELIXLIKE_"

// serviceLink reports whether Kubernetes set the variable for a Service with a name like ours (as in
// FELIXLIKE_SERVICE_HOST, FELIXLIKE_PORT_80_TCP).
func serviceLink(name string) bool {
	return strings.HasSuffix(name, "_SERVICE_HOST") || strings.Contains(name, "_SERVICE_PORT") ||
		strings.HasSuffix(name, "_PORT") || strings.Contains(name, "_PORT_")
}

// FlagName returns the flag of a key: "ovsRunDir" is --ovs-run-dir.
func FlagName(key string) string { return split(key, '-') }

// EnvName returns the environment variable of a key: "ovsRunDir" is
// FELIXLIKE_OVS_RUN_DIR.
func EnvName(key string) string { return envPrefix + strings.ToUpper(split(key, '_')) }

// split separates the words of a camel-case key, and its parts between dots; a
// run of capitals is one word that ends before its last letter when a
// lower-case one follows that is not the s of a plural.
func split(key string, sep rune) string {
	var b strings.Builder
	runes := []rune(key)
	for i, r := range runes {
		if r == '.' {
			b.WriteRune(sep)
			continue
		}
		if i > 0 && unicode.IsUpper(r) {
			nextLower := i+1 < len(runes) && unicode.IsLower(runes[i+1]) && !plural(runes[i+1:])
			if unicode.IsLower(runes[i-1]) || nextLower {
				b.WriteRune(sep)
			}
		}
		b.WriteRune(unicode.ToLower(r))
	}
	return b.String()
}

// plural reports whether a word's rest is no more than an s.
func plural(rest []rune) bool {
	return rest[0] == 's' && (len(rest) == 1 || !unicode.IsLower(rest[1]))
}

// Row is one setting as people see it.
type Row struct {
	Key    string `json:"key"`
	Value  string `json:"value"`
	Origin string `json:"origin"`
	// InUse is the value that a running agent has found for a setting such as auto.
	InUse string `json:"inUse,omitempty"`
}

// Rows returns every setting in the order of the type.
func (e *Effective) Rows() []Row {
	var rows []Row
	for _, s := range settings(&e.Config) {
		rows = append(rows, Row{Key: s.key, Value: fmt.Sprint(s.value.Interface()), Origin: e.Origin[s.key]})
	}
	return rows
}
