package vswitchd

import (
	"context"
	"errors"
	"strings"
)

// ErrAwaitsFlows says that ovs-vswitchd was started with
// other_config:flow-restore-wait=true, and that the key is still there. It
// accepts OpenFlow flows, but has no revalidators and gets no packets. The datapath uses
// the old cached flows and drops all other packets. When the key is removed, ovs-vswitchd
// first removes all cached flows.
var ErrAwaitsFlows = errors.New("ovs-vswitchd keeps old cached flows in force until other_config:flow-restore-wait is removed")

// AwaitsFlows reports whether ovs-vswitchd is in the state of ErrAwaitsFlows. It asks the
// daemon and not the database: after leaving the state, ovs-vswitchd ignores the key.
func (c *Client) AwaitsFlows(ctx context.Context) (bool, error) {
	s, err := c.dial(ctx)
	if err != nil {
		return false, err
	}
	awaits, err := s.awaitsFlows(ctx)
	return awaits, errors.Join(err, s.close())
}

// awaitsFlows asks for the revalidators of each datapath. Only in this state does
// ovs-vswitchd 3.1 have bridges but no revalidators.
func (s *session) awaitsFlows(ctx context.Context) (bool, error) {
	out, err := s.call(ctx, "upcall/show")
	return parseAwaitsFlows(out), err
}

// parseAwaitsFlows reports whether an answer to upcall/show has datapaths, but no
// revalidators. A datapath is a line without indentation; a revalidator is a line that
// begins with its number, such as "  4: (keys 12)".
func parseAwaitsFlows(shown string) bool {
	datapaths := 0
	for line := range strings.Lines(shown) {
		text := strings.TrimSpace(line)
		switch {
		case text == "":
		case line[0] != ' ':
			datapaths++
		case text[0] >= '0' && text[0] <= '9':
			return false
		}
	}
	return datapaths > 0
}
