package vswitchd

import (
	"context"
	"errors"
	"strings"
)

// ErrAwaitsFlows says that ovs-vswitchd was started with
// other_config:flow-restore-wait=true, and that nobody has removed the key since. It
// takes OpenFlow flows, but has no revalidators and asks for no packets: the datapath
// goes on with the cached flows of before, and drops all others. When the key goes,
// ovs-vswitchd removes all cached flows first.
var ErrAwaitsFlows = errors.New("ovs-vswitchd keeps the cached flows of before its start in force until other_config:flow-restore-wait is removed")

// AwaitsFlows reports whether ovs-vswitchd is in the state of ErrAwaitsFlows. The
// database does not tell: ovs-vswitchd leaves the state once, and reads the key no more.
func (c *Client) AwaitsFlows(ctx context.Context) (bool, error) {
	s, err := c.dial(ctx)
	if err != nil {
		return false, err
	}
	awaits, err := s.awaitsFlows(ctx)
	return awaits, errors.Join(err, s.close())
}

// awaitsFlows asks for the revalidators of each datapath: ovs-vswitchd 3.1 has bridges
// and no revalidators in no other state.
func (s *session) awaitsFlows(ctx context.Context) (bool, error) {
	out, err := s.call(ctx, "upcall/show")
	return parseAwaitsFlows(out), err
}

// parseAwaitsFlows reports whether an answer to upcall/show names datapaths, but no
// revalidators. A datapath is a line that begins at the margin. A revalidator is one that
// begins with its number, as in "  4: (keys 12)".
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
