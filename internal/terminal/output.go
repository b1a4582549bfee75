package terminal

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/client-go/util/jsonpath"
	"sigs.k8s.io/yaml"

	"github.com/felixlike/felixlike/internal/printable"
)

// Output is the value of the flag --output.
type Output string

// Formats of output. Wide is text that is not fitted to the terminal's width; Name is names
// alone, a line each; Native is the unchanged output of other tools. Where JSON is known, so is
// jsonpath=TEMPLATE, with kubectl's templates.
const (
	Text     Output = "text"
	Wide     Output = "wide"
	Name     Output = "name"
	JSON     Output = "json"
	YAML     Output = "yaml"
	Markdown Output = "markdown"
	Native   Output = "native"
)

// jsonPath begins the format that prints parts of the JSON output.
const jsonPath = "jsonpath="

// Flag adds the flags --output and --no-headers to a command, with completion. The default is text. Without
// formats, text, json and yaml are known.
func (o *Output) Flag(c *cobra.Command, formats ...Output) {
	if len(formats) == 0 {
		formats = []Output{Text, JSON, YAML}
	}
	*o = Text
	f := outputFlag{o, formats}
	c.Flags().VarP(f, "output", "o", "output format: "+f.words())
	words := make([]string, len(formats))
	for i, one := range formats {
		words[i] = string(one)
	}
	if f.knowsPaths() {
		words = append(words, jsonPath)
	}
	Complete(c, "output", words...)
	HeadersFlag(c)
}

// Complete adds the values of a flag to the completion of the command's words.
func Complete(c *cobra.Command, flag string, values ...string) {
	// The caller has made the flag.
	_ = c.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp))
}

// outputFlag is the flag of one command.
type outputFlag struct {
	value *Output
	known []Output
}

// knowsPaths reports whether jsonpath=TEMPLATE is known.
func (f outputFlag) knowsPaths() bool { return slices.Contains(f.known, JSON) }

// words are the known formats, as in "text, json or yaml".
func (f outputFlag) words() string {
	var words []string
	for _, one := range f.known {
		words = append(words, string(one))
	}
	if f.knowsPaths() {
		words = append(words, jsonPath+"TEMPLATE")
	}
	last := len(words) - 1
	return strings.Join(words[:last], ", ") + " or " + words[last]
}

// String implements pflag.Value.
func (f outputFlag) String() string {
	if f.value == nil { // pflag asks the zero value
		return ""
	}
	return string(*f.value)
}

// Type implements pflag.Value.
func (f outputFlag) Type() string { return "format" }

// Set implements pflag.Value: an unknown format is refused before anything is
// done.
func (f outputFlag) Set(text string) error {
	if template, is := strings.CutPrefix(text, jsonPath); is && f.knowsPaths() {
		if _, err := parsePath(template); err != nil {
			return err
		}
		*f.value = Output(text)
		return nil
	}
	if !slices.Contains(f.known, Output(text)) {
		return fmt.Errorf("%q is not %s", text, f.words())
	}
	*f.value = Output(text)
	return nil
}

// Style returns the style for a writer in this format.
func (o Output) Style(w io.Writer) Style {
	s := StyleFor(w)
	if o == Wide {
		s.width = 0
	}
	return s
}

// Print writes a value in the format, or as text by the function. The caller prints names.
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
	if template, is := strings.CutPrefix(string(o), jsonPath); is {
		return printPath(w, template, value)
	}
	return text()
}

// PrintLine is Print of one of many values: JSON takes a line, and YAML is a document.
func (o Output) PrintLine(w io.Writer, value any, text func() error) error {
	if o == JSON {
		return json.NewEncoder(w).Encode(value)
	}
	if o == YAML {
		if _, err := fmt.Fprintln(w, "---"); err != nil {
			return err
		}
	}
	return o.Print(w, value, text)
}

// ForPrograms reports whether Print does not print the text.
func (o Output) ForPrograms() bool {
	return o == JSON || o == YAML || strings.HasPrefix(string(o), jsonPath)
}

// parsePath parses a template of kubectl, as in {.nodes[*].name}.
func parsePath(template string) (*jsonpath.JSONPath, error) {
	if !strings.Contains(template, "{") {
		return nil, fmt.Errorf("%q is not a template such as {.node}", template)
	}
	path := jsonpath.New("output")
	return path, path.Parse(template)
}

// printPath prints what a template picks out of the JSON of a value, and the end of the line.
func printPath(w io.Writer, template string, value any) error {
	path, err := parsePath(template)
	if err != nil {
		return err
	}
	text, err := json.Marshal(value)
	if err != nil {
		return err
	}
	var data any
	if err := json.Unmarshal(text, &data); err != nil {
		return err
	}
	var out strings.Builder
	if err := path.Execute(&out, data); err != nil {
		return err
	}
	_, err = fmt.Fprintln(w, printable.Lines(out.String()))
	return err
}

// PrintNames writes names, a line each.
func PrintNames(w io.Writer, names []string) error {
	for _, name := range names {
		if _, err := fmt.Fprintln(w, name); err != nil {
			return err
		}
	}
	return nil
}
