package config

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/spf13/pflag"
	"sigs.k8s.io/yaml"

	"github.com/felixlike/felixlike/internal/nearest"
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
// strings), the flags that were set and --set, in rising order of precedence. The error has all
// faults, a line each.
func Load(flags *pflag.FlagSet, environ []string) (*Effective, error) {
	e := &Effective{Config: Defaults(), Origin: map[string]string{}}
	for _, s := range settings(&e.Config) {
		e.Origin[s.key] = FromDefault
	}
	var all []error
	if path, err := flags.GetString("config"); err == nil && path != "" {
		all = append(all, e.loadFile(path)...)
	}
	all = append(all, e.loadEnvironment(environ)...)
	for _, s := range settings(&e.Config) {
		if f := flags.Lookup(FlagName(s.key)); f != nil && f.Changed {
			if err := s.set(f.Value.String()); err != nil {
				all = append(all, fmt.Errorf("flag --%s: %w", f.Name, err))
			}
			e.Origin[s.key] = FromFlag
		}
	}
	all = append(all, e.loadSet(flags)...)
	if e.NodeName == "" {
		name, err := os.Hostname()
		if err != nil {
			all = append(all, fmt.Errorf("nodeName: not set, and no host name: %w", err))
		}
		e.NodeName = name
	}
	if err := e.validate(); err != nil {
		all = append(all, fmt.Errorf("configuration: %w", err))
	}
	if len(all) > 0 {
		return nil, errors.Join(all...)
	}
	return e, nil
}

func (e *Effective) loadFile(path string) (all []error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return []error{fmt.Errorf("configuration file: %w", err)}
	}
	var values map[string]any
	if err := yaml.UnmarshalStrict(data, &values); err != nil {
		return []error{fmt.Errorf("configuration file %s: %w", path, err)}
	}
	if values["apiVersion"] != APIVersion || values["kind"] != Kind {
		return []error{fmt.Errorf("configuration file %s: apiVersion and kind must be %s and %s", path, APIVersion, Kind)}
	}
	delete(values, "apiVersion")
	delete(values, "kind")
	flatten(values)
	at := func(key string) string { return "configuration file " + path + lineOf(data, key) }
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
			all = append(all, fmt.Errorf("%s: %s: %w", at(s.key), s.key, err))
		}
		e.Origin[s.key] = FromFile
		delete(values, s.key)
	}
	for _, key := range slices.Sorted(maps.Keys(values)) {
		all = append(all, fmt.Errorf("%s: unknown setting %q%s", at(key), key, nearest.Hint(key, keys(&e.Config))))
	}
	return all
}

func keys(c *Config) []string {
	var all []string
	for _, s := range settings(c) {
		all = append(all, s.key)
	}
	return all
}

// lineOf returns ", line N" for the first line that begins with the key, or with its part
// behind the section's dot; "" if none does, as in a file of JSON.
func lineOf(data []byte, key string) string {
	key = key[strings.LastIndexByte(key, '.')+1:]
	n := 0
	for line := range strings.Lines(string(data)) {
		n++
		if strings.HasPrefix(strings.TrimSpace(line), key+":") {
			return fmt.Sprintf(", line %d", n)
		}
	}
	return ""
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

func (e *Effective) loadEnvironment(environ []string) (all []error) {
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
			all = append(all, fmt.Errorf("environment: unknown setting %s%s", name, nearest.Hint(name, slices.Sorted(maps.Keys(byName)))))
			continue
		}
		if err := s.set(value); err != nil {
			all = append(all, fmt.Errorf("environment: %s: %w", name, err))
		}
		e.Origin[s.key] = FromEnvironment
	}
	return all
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
	case Hosts:
		if text, ok := listed(value); ok {
			return text, nil
		}
		want = "a list of addresses"
	case Ports:
		if text, ok := listed(value); ok {
			return text, nil
		}
		want = "a list of ports"
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
	case Hosts:
		all, err := parseHosts(text)
		if err != nil {
			return err
		}
		s.value.Set(reflect.ValueOf(all))
	case Ports:
		all, err := parsePorts(text)
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
