package kernel

import (
	"errors"
	"fmt"
)

// ErrUnnamed is what Options.Fault returns for a transaction that the kernel
// refuses without naming one of its messages, as it does when a commit fails.
var ErrUnnamed = errors.New("the kernel names nothing")

// injected returns the refusal that the fault hook has for a transaction, or nil.
func (c *Conn) injected(ops []Op) error {
	if c.fault == nil {
		return nil
	}
	a := answer{ops: ops, acknowledged: true}
	for i := range ops {
		err := c.fault(ops[i].About(c.table).ObjectError)
		switch {
		case errors.Is(err, ErrUnnamed):
			a.commit = fmt.Errorf("the kernel refuses: %w", err)
		case err != nil:
			a.refused = append(a.refused, refusedOp{Index: i, err: fmt.Errorf("the kernel refuses: %w", err)})
		}
	}
	if a.commit != nil {
		a.refused = nil
	}
	return a.outcome(c.table)
}
