package verify

import (
	"errors"
	"fmt"
)

// ErrLate means that too many allowed probes were answered late.
var ErrLate = errors.New("too many late")

// lateShare bounds the late answers of allowed probes, as one in lateShare: a
// busy machine loses a packet now and then.
const lateShare = 1000

// Tally adds up the outcomes of a table's steps.
type Tally struct {
	Steps, Probes, Expected, Allowed, Wrong, Late, NotTried int
}

// Add counts an outcome.
func (t *Tally) Add(o Outcome) {
	t.Steps++
	t.Probes += len(o.Got)
	t.Expected += o.Expected
	t.Allowed += o.Allowed
	t.Wrong += len(o.Wrong)
	t.Late += o.Late
	t.NotTried += o.NotTried
}

// TooLate returns ErrLate if more than 0.1 % of the allowed probes were late. A single
// late probe is not enough to estimate a share, so a short table may have one.
func (t *Tally) TooLate() error {
	if t.Late <= max(1, t.Allowed/lateShare) {
		return nil
	}
	return fmt.Errorf("%d of %d allowed probes had no answer in time: %w", t.Late, t.Allowed, ErrLate)
}
