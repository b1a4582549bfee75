package uplink

import (
	"errors"
	"fmt"

	"github.com/vishvananda/netlink"
)

// Abandoned reports whether the uplink's addresses or routes are where no ovs-vswitchd serves
// them: on a bridge's local port without a carrier, or lost with a bridge that was removed.
func (in In) Abandoned(bridge string) (bool, error) {
	name, err := StandsFor(bridge)
	if err != nil {
		return false, err
	}
	if name == "" {
		_, uplink, err := in.readJournal()
		return uplink != nil, err
	}
	carrier, err := hasCarrier(bridge)
	return !carrier && err == nil, err
}

// Rescue is Restore if the uplink is Abandoned, else nothing: another mover may have moved its addresses
// meanwhile.
func (in In) Rescue(bridge string) (moved Moved, err error) {
	err = in.locked(func() error {
		abandoned, err := in.Abandoned(bridge)
		if err == nil && abandoned {
			moved, err = in.restore(bridge)
		}
		return err
	})
	return moved, err
}

// Restore moves addresses and routes from the bridge's local port back to the uplink, which
// works without ovs-vswitchd. If the bridge was removed or is down, the routes are from the journal. It
// does nothing if nothing was moved.
func (in In) Restore(bridge string) (moved Moved, err error) {
	err = in.locked(func() error {
		moved, err = in.restore(bridge)
		return err
	})
	return moved, err
}

func (in In) restore(bridge string) (Moved, error) {
	name, err := StandsFor(bridge)
	if err != nil {
		return Moved{}, err
	}
	if name == "" {
		return in.restoreWithoutBridge()
	}
	m, err := newMover(bridge, name)
	if err != nil {
		return Moved{}, err
	}
	m.back = true
	if err := netlink.LinkSetUp(m.to); err != nil {
		return Moved{}, fmt.Errorf("set %s up: %w", name, err)
	}
	down := isDown(m.from)
	// After an error, the other steps still run.
	err = Unshield()
	moved, errMoved := m.all()
	err = errors.Join(err, errMoved, m.asBefore())
	if down {
		restored, errRestored := in.restoreLost(name)
		moved.Restored, err = restored, errors.Join(err, errRestored)
	}
	if err == nil {
		err = in.erase()
	}
	return moved, err
}

// restoreWithoutBridge gives the uplink of a journal its routes back.
func (in In) restoreWithoutBridge() (Moved, error) {
	_, uplink, err := in.readJournal()
	if err != nil || uplink == nil {
		return Moved{}, err
	}
	err = Unshield()
	restored, errRestored := in.restoreLost(uplink.Attrs().Name)
	return Moved{Restored: restored}, errors.Join(err, errRestored)
}
