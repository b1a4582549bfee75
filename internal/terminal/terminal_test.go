package terminal

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"
)

func TestTable(t *testing.T) {
	table := NewTable(Style{}, "NAME", "COUNT", "WHAT")
	table.Row("a", 5, "x")
	table.Row("longer", 1234, "")
	if want := "NAME    COUNT  WHAT\na           5  x\nlonger   1234"; table.String() != want {
		t.Errorf("got\n%s\nwant\n%s", table, want)
	}
	painted := NewTable(Style{on: true}, "NAME", "COUNT")
	painted.Row("longer", 1)
	if want := "\x1b[1mNAME\x1b[0m    \x1b[1mCOUNT\x1b[0m\nlonger      1"; painted.String() != want {
		t.Errorf("got\n%q\nwant\n%q", painted, want)
	}
}

// TestTableFitsTheTerminal: the widest columns are wrapped, nothing is cut, and -o wide leaves all as it is.
func TestTableFitsTheTerminal(t *testing.T) {
	table := NewTable(Style{width: 40}, "POD", "INGRESS", "N")
	table.Row("shop/web", "shop/default-deny shop/metrics shop/web-from-outside", 7)
	table.Row("shop/db", "open", 12)
	const want = "POD       INGRESS                    N\n" +
		"shop/web  shop/default-deny          7\n" +
		"          shop/metrics\n" +
		"          shop/web-from-outside\n" +
		"shop/db   open                      12"
	if got := table.String(); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	for line := range strings.Lines(table.String()) {
		if len(strings.TrimRight(line, "\n")) > 40 {
			t.Errorf("too wide: %q", line)
		}
	}
	if !table.Fits() {
		t.Error("a break inside a word")
	}
	names := NewTable(Style{width: 52}, "POLICY", "OTHER POLICY", "ADDRESS")
	names.Row("networkpolicy/shop/default-deny", "networkpolicy/shop/db", "fd00:10::a0a:a")
	const parts = "POLICY            OTHER POLICY      ADDRESS\n" +
		"networkpolicy/    networkpolicy/    fd00:10::a0a:a\n" +
		"shop/             shop/db\n" +
		"default-deny"
	if got := names.String(); got != parts || names.Fits() {
		t.Errorf("got\n%s\nwant\n%s", got, parts)
	}
	cut := NewTable(Style{width: 28}, "A", "B")
	cut.Row("a-name-without-slashes", "x/another-long-name")
	if got, want := cut.String(), "A             B\na-name-witho  x/\nut-slashes    another-long\n              -name"; got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	terminal, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Skip("no pseudo terminal: ", err)
	}
	defer terminal.Close()
	if err := unix.IoctlSetWinsize(int(terminal.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Col: 77, Row: 20}); err != nil {
		t.Fatal(err)
	}
	if s := StyleFor(terminal); s.width != 77 || Wide.Style(terminal).width != 0 || Text.Style(terminal).width != 77 {
		t.Errorf("%+v, wide %+v", s, Wide.Style(terminal))
	}
}

func TestOutput(t *testing.T) {
	value := struct {
		A int `json:"a"`
	}{1}
	for format, want := range map[string]string{"text": "as text", "json": "{\n  \"a\": 1\n}\n", "yaml": "a: 1\n", "jsonpath={.a}": "1\n"} {
		var o Output
		c := &cobra.Command{}
		o.Flag(c)
		if err := c.Flags().Set("output", format); err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		if err := o.Print(&out, value, func() error { out.WriteString("as text"); return nil }); err != nil || out.String() != want {
			t.Errorf("%s: %v, %q", format, err, out.String())
		}
	}
	var o Output
	c := &cobra.Command{}
	o.Flag(c, Text, Name, JSON)
	for format, why := range map[string]string{
		"xml": "is not text, name, json or jsonpath=TEMPLATE", "yaml": "is not text, name, json", "wide": "is not text, name, json",
		"jsonpath=": "is not a template such as {.node}", "jsonpath=a": "is not a template", "jsonpath={.a": "unclosed action",
	} {
		if err := c.Flags().Set("output", format); err == nil || o != Text || !strings.Contains(err.Error(), why) {
			t.Errorf("%s was taken: %v %s", format, err, o)
		}
	}
	if err := Output("jsonpath={.b}").Print(io.Discard, value, nil); err == nil || !strings.Contains(err.Error(), "b is not found") {
		t.Errorf("a field that is not there: %v", err)
	}
	var withoutJSON Output
	c = &cobra.Command{}
	withoutJSON.Flag(c, Text, Name)
	if err := c.Flags().Set("output", "jsonpath={.a}"); err == nil {
		t.Error("a command without JSON takes a template")
	}
}

// PrintLine prints JSON in one line, YAML as a document, and the result of a template.
func TestPrintLine(t *testing.T) {
	for format, want := range map[Output]string{JSON: "{\"a\":1}\n", YAML: "---\na: 1\n", "jsonpath={.a}": "1\n", Text: "as text"} {
		var out bytes.Buffer
		err := format.PrintLine(&out, map[string]int{"a": 1}, func() error { out.WriteString("as text"); return nil })
		if err != nil || out.String() != want || format.ForPrograms() != (format != Text) {
			t.Errorf("%s: %q, %v", format, out.String(), err)
		}
	}
}

// TestNoHeaders: with --no-headers, tables have rows only, in columns as narrow as these; also those that are printed as rows come.
func TestNoHeaders(t *testing.T) {
	for args, want := range map[string]string{
		"":                     "NAME  COUNT\nab        5\nNAME   COUNT\nab     5\n3 more\n",
		"--no-headers":         "ab  5\nab     5\n3 more\n",
		"--no-headers=false":   "NAME  COUNT\nab        5\nNAME   COUNT\nab     5\n3 more\n",
		"--no-headers -o wide": "ab  5\nab     5\n3 more\n",
	} {
		var o Output
		var out bytes.Buffer
		c := &cobra.Command{RunE: func(c *cobra.Command, _ []string) error {
			w := c.OutOrStdout()
			table := NewTable(o.Style(w), "NAME", "COUNT")
			table.Row("ab", 5)
			fmt.Fprintln(w, table)
			lines := NewLines(w, []int{5}, "NAME", "COUNT")
			if err := lines.Row("ab", "5"); err != nil {
				return err
			}
			return lines.Note("3 more")
		}}
		o.Flag(c, Text, Wide)
		c.SetOut(&out)
		c.SetArgs(strings.Fields(args))
		if err := c.Execute(); err != nil || out.String() != want {
			t.Errorf("%q: %v, got\n%s", args, err, out.String())
		}
	}
	file, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if got, is := File(bareWriter{file}); !is || got != file {
		t.Error("the file behind the output of a command with --no-headers is unknown")
	}
}

func TestProgressIsSilentAtFirst(t *testing.T) {
	var out bytes.Buffer
	stop := Progress(&out, Doing("working"))
	stop()
	if out.Len() != 0 {
		t.Errorf("printed %q", out.String())
	}
	lines := make(chan string, 1)
	stop = Progress(writer(func(b []byte) { lines <- string(b) }), Doing("working"))
	defer stop()
	select {
	case line := <-lines:
		if !strings.HasPrefix(line, "working (2s)") {
			t.Errorf("printed %q", line)
		}
	case <-time.After(30 * time.Second):
		t.Error("no progress for a long operation")
	}
}

type writer func([]byte)

func (w writer) Write(b []byte) (int, error) { w(b); return len(b), nil }

// TestHostileCells: what a name or an answer of an agent contains does not reach the terminal; the table's own colours do.
func TestHostileCells(t *testing.T) {
	const hostile = "a\x1b[31mEVIL\x1b[2K\rb\u009b"
	for _, on := range []bool{false, true} {
		style := Style{on: on}
		table := NewTable(style, "NAME", "STATE")
		table.Row(hostile, style.Good("ok"))
		out := table.String()
		if !strings.Contains(out, "a?[31mEVIL?[2K?b?") || !strings.Contains(out, style.Good("ok")) {
			t.Errorf("colours %v: %q", on, out)
		}
	}
}
