package terminal

import (
	"encoding/json"
	"fmt"
	"io"

	"sigs.k8s.io/yaml"
)

// Output is the value of the flag --output.
type Output string

// Formats of output.
const (
	Text Output = "text"
	JSON Output = "json"
	YAML Output = "yaml"
)

// String implements pflag.Value.
func (o *Output) String() string { return string(*o) }

// Type implements pflag.Value.
func (o *Output) Type() string { return "format" }

// Set implements pflag.Value: an unknown format is refused before anything is
// done.
func (o *Output) Set(text string) error {
	switch format := Output(text); format {
	case Text, JSON, YAML:
		*o = format
		return nil
	}
	return fmt.Errorf("%q is not one of text, json, yaml", text)
}

// OutputUsage is the help text of the flag.
const OutputUsage = "output format: text, json or yaml"

// Print writes a value in the format, or as text by the function.
func (o Output) Print(w io.Writer, value any, text func() error) error {
	switch o {
	case JSON:
		e := json.NewEncoder(w)
		e.SetIndent("", "  ")
		return e.Encode(value)
	case YAML:
		b, err := yaml.Marshal(value)
		if err != nil {
			return err
		}
		_, err = w.Write(b)
		return err
	}
	return text()
}
