package terminal

import (
	"bytes"
	"strings"
	"testing"
	"time"
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

func TestOutput(t *testing.T) {
	value := struct {
		A int `json:"a"`
	}{1}
	for format, want := range map[string]string{"text": "as text", "json": "{\n  \"a\": 1\n}\n", "yaml": "a: 1\n"} {
		var o Output
		if err := o.Set(format); err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		if err := o.Print(&out, value, func() error { out.WriteString("as text"); return nil }); err != nil || out.String() != want {
			t.Errorf("%s: %v, %q", format, err, out.String())
		}
	}
	o := Text
	if err := o.Set("xml"); err == nil || o != Text {
		t.Errorf("xml was taken: %v %s", err, o)
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
