package bench

import (
	"bytes"
	"io"
	"strings"
	"testing"

	"github.com/felixlike/felixlike/internal/measure"
)

// A run on a machine that was busy before says so in the first line of the report.
func TestFirstLineNamesBusyMachine(t *testing.T) {
	for load, want := range map[string]bool{"21.30 19.01 8.00": true, "0.64 0.66 2.46": false} {
		r := &Report{Backends: []string{"nftables"}, Machine: measure.Machine{Cores: 2, LoadBefore: load}}
		for name, write := range map[string]func(io.Writer) error{"text": r.Text, "markdown": r.Markdown} {
			var b bytes.Buffer
			if err := write(&b); err != nil {
				t.Fatal(err)
			}
			first, _, _ := strings.Cut(b.String(), "\n")
			if got := strings.Contains(first, "BUSY machine (load average "+load+" on 2 cores"); got != want {
				t.Errorf("load %s, %s begins with %q", load, name, first)
			}
		}
	}
}
