package cli

import (
	"fmt"
	"io"
	"time"

	"github.com/felixlike/felixlike/test/measure"
)

// progress prints a line for each turn, a word for each case in it.
type progress struct {
	out     io.Writer
	started time.Time
	turn    time.Time
}

// newProgress returns a progress that begins now.
func newProgress(out io.Writer) measure.Progress { return &progress{out: out, started: time.Now()} }

// Turn implements measure.Progress.
func (p *progress) Turn(round, rounds int, backend string) {
	p.turn = time.Now()
	fmt.Fprintf(p.out, "[%s] round %d of %d, %s:", p.turn.Sub(p.started).Round(time.Second), round, rounds, backend)
}

// Case implements measure.Progress.
func (p *progress) Case(name string) { fmt.Fprint(p.out, " ", name) }

// Done implements measure.Progress.
func (p *progress) Done() {
	fmt.Fprintf(p.out, " (%s)\n", time.Since(p.turn).Round(100*time.Millisecond))
}
