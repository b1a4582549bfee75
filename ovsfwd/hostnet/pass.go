package hostnet

import (
	"fmt"

	"github.com/vishvananda/netlink"
)

// pass is one comparison of desired and observed state.
type pass struct {
	wanted *objects
	mtu    int
	// before is the state that was programmed last.
	before programmed
	link   netlink.Link
	// device is the index of the WireGuard device; zero without one.
	device int
	writes int
	log    repairLog
	errs   []error
}

// write counts a write, keeps its error, and reports whether it succeeded.
func (p *pass) write(what string, err error) bool {
	p.writes++
	if err != nil {
		p.fail(what, err)
	}
	return err == nil
}

// again reports whether an earlier Apply has programmed everything: only then can a
// difference be a foreign change.
func (p *pass) again() bool { return p.before.objects != nil }

func (p *pass) fail(what string, err error) {
	p.errs = append(p.errs, fmt.Errorf("%s: %w", what, err))
}
