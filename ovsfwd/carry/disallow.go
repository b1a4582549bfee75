package carry

import (
	"context"
	"fmt"

	"github.com/felixlike/felixlike/ovsfwd/conntrack"
	"github.com/felixlike/felixlike/rules"
)

// Disallow takes the mark of allowed connections from connections that Through has listed, and returns their
// number. Their packets are then judged one by one. The entries stay: without them, the next packet of a server
// would begin a connection in the other direction, and the client's packets would be its answers.
func (c *Carrier) Disallow(ctx context.Context, inSwitch bool, all []conntrack.Connection) (int, error) {
	done := 0
	err := c.withZone(ctx, func(kernel *conntrack.Kernel, z zone) (err error) {
		if inSwitch {
			done, err = z.disallow(ctx, all)
			return err
		}
		puts := make([]conntrack.Put, len(all))
		for i, k := range all {
			puts[i] = conntrack.Put{Connection: k, MarkMask: rules.MarkAllowed}
			// Other bits of mark and label are those of other programs.
			puts[i].Mark, puts[i].Label = 0, conntrack.Label{}
		}
		done, err = kernel.Write(puts)
		return err
	})
	if err != nil {
		return done, fmt.Errorf("end connections: %w", err)
	}
	return done, nil
}
