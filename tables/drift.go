package tables

import (
	"fmt"
	"strings"
)

// Drift describes a foreign change of one object: in words, and by the numbers of changed
// parts of the object.
type Drift struct {
	// Words describe changes of the object itself, as "deleted".
	Words []string
	// Part and Parts name one part and several, as "rule" and "rules".
	Part, Parts                      string
	Missing, Foreign, Changed, Moved int
}

// String describes the change for a Repair, as "1 rule missing, 2 foreign rules". It is
// empty if there is none.
func (d Drift) String() string {
	words := append([]string(nil), d.Words...)
	for _, c := range []struct {
		n      int
		format string
	}{{d.Missing, "%d %s missing"}, {d.Foreign, "%d foreign %s"}, {d.Changed, "%d %s changed"}, {d.Moved, "%d %s moved"}} {
		switch {
		case c.n == 1:
			words = append(words, fmt.Sprintf(c.format, 1, d.Part))
		case c.n > 1:
			words = append(words, fmt.Sprintf(c.format, c.n, d.Parts))
		}
	}
	return strings.Join(words, ", ")
}
