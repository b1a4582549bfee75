package carry

import (
	"context"
	"fmt"

	"github.com/felixlike/felixlike/ovsfwd/conntrack"
	"github.com/felixlike/felixlike/rules"
)

// Through lists the live connections of pods that policy has allowed, from the kernel, or from the switch if
// it judges packets. The switch's list has packets that the host translates for pods after the translation.
func (c *Carrier) Through(ctx context.Context, inSwitch bool) ([]conntrack.Connection, error) {
	return c.allowed(ctx, inSwitch, alive)
}

// Begun is Through with the connections that have ended and still have an entry.
func (c *Carrier) Begun(ctx context.Context, inSwitch bool) ([]conntrack.Connection, error) {
	return c.allowed(ctx, inSwitch, func(*conntrack.Connection) bool { return true })
}

func (c *Carrier) allowed(ctx context.Context, inSwitch bool, wanted func(*conntrack.Connection) bool) ([]conntrack.Connection, error) {
	s, err := c.look()
	if err != nil {
		return nil, err
	}
	var all []conntrack.Connection
	err = c.withZone(ctx, func(kernel *conntrack.Kernel, z zone) error {
		if inSwitch {
			known, err := z.dump(ctx)
			for i := range known {
				if k := &known[i]; isAllowed(k) && wanted(k) && s.ofPod(k) {
					all = append(all, *k)
				}
			}
			return err
		}
		return kernel.Dump(func(k conntrack.Connection) {
			if k.Zone == 0 && k.Mark&rules.MarkAllowed != 0 && wanted(&k) && s.ofPod(&k) {
				all = append(all, k)
			}
		})
	})
	if err != nil {
		return all, fmt.Errorf("list connections: %w", err)
	}
	return all, nil
}

// ofPod reports whether a pod is at an end of a connection.
func (s *sight) ofPod(k *conntrack.Connection) bool {
	return s.isPod(k.Original.Src) || s.isPod(k.Reply.Src)
}
