package cli

import (
	"fmt"
	"io"
	"time"
)

// progress prints a line for each turn, a word for each case in it.
type progress struct {
	out     io.Writer
	started time.Time
	turn    time.Time
}

// Turn implements bench.Progress.
func (p *progress) Turn(round, rounds int, backend string) {
	p.turn = time.Now()
	fmt.Fprintf(p.out, "[%s] round %d of %d, %s:", p.turn.Sub(p.started).Round(time.Second), round, rounds, backend)
}

// Case implements bench.Progress.
func (p *progress) Case(name string) { fmt.Fprint(p.out, " ", name) }

// Done implements bench.Progress.
func (p *progress) Done() {
	fmt.Fprintf(p.out, " (%s)\n", time.Since(p.turn).Round(100*time.Millisecond))
}
