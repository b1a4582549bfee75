package vswitchd

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/felixlike/felixlike/ovsfwd/conntrack"
)

// flush does not take a datapath's name in 3.1.0, although it says so: it takes
// that for a tuple. Without one it needs the daemon to have one datapath only,
// and says so.
const flush = "dpctl/flush-conntrack"

// DumpConntrack returns the connections of a zone. A line that cannot be read is
// named in the error; the connections returned beside are all others.
func (c *Client) DumpConntrack(ctx context.Context, zone uint16) ([]conntrack.Connection, error) {
	// Verbose for the states of both ends, -s for timeouts.
	out, err := c.Call(ctx, "dpctl/dump-conntrack", "-m", "-s", c.datapath(), zoneArg(zone))
	if err != nil {
		return nil, c.lacking(ctx, err)
	}
	all, err := parseConnections(out)
	if err != nil {
		err = fmt.Errorf("ovs-vswitchd: dpctl/dump-conntrack: %w", err)
	}
	return all, err
}

// FlushZone forgets all connections of a zone.
func (c *Client) FlushZone(ctx context.Context, zone uint16) error {
	_, err := c.Call(ctx, flush, zoneArg(zone))
	return c.lacking(ctx, err)
}

// FlushConntrack deletes the connections of a zone that have one of the addresses at an end, also at a translated one. It returns their
// number, and the connections that it left: ICMPv6, since ovs-vswitchd dies (seen with 3.1.0) of the tuple of
// such a connection, and of a partial tuple that matches one. Without addresses it does nothing.
func (c *Client) FlushConntrack(ctx context.Context, zone uint16, addrs ...netip.Addr) (flushed int, left []conntrack.Connection, err error) {
	if len(addrs) == 0 {
		return 0, nil, nil
	}
	wanted := make(map[netip.Addr]bool, len(addrs))
	for _, a := range addrs {
		wanted[a.Unmap()] = true
	}
	all, unread := c.DumpConntrack(ctx, zone)
	var obsolete []conntrack.Tuple
	for _, one := range all {
		t := one.Original
		switch {
		case !wanted[t.Src] && !wanted[t.Dst] && !wanted[one.Reply.Src]:
		case t.Protocol == unix.IPPROTO_ICMPV6:
			left = append(left, one)
		default:
			obsolete = append(obsolete, t)
		}
	}
	flushed, err = c.FlushConnections(ctx, zone, obsolete)
	return flushed, left, errors.Join(unread, err)
}

// FlushConnections forgets single connections of a zone, named by their original
// direction, and returns how many there were. One of ICMPv6 is refused: see
// FlushConntrack.
func (c *Client) FlushConnections(ctx context.Context, zone uint16, tuples []conntrack.Tuple) (flushed int, err error) {
	if len(tuples) == 0 {
		return 0, nil
	}
	s, err := c.dial(ctx)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	for _, t := range tuples {
		if t.Protocol == unix.IPPROTO_ICMPV6 {
			return flushed, fmt.Errorf("ovs-vswitchd: %s: connection %s: not by its tuple", flush, t)
		}
		switch _, err := s.call(ctx, flush, zoneArg(zone), tupleArg(t)); {
		case err == nil:
			flushed++
		case !isGone(err):
			return flushed, err
		}
	}
	return flushed, nil
}

// isGone reports whether the daemon refused because the connection does not exist. The daemon uses the C
// library's words, which begin with a capital letter.
func isGone(err error) bool {
	refused := new(CallError)
	return errors.As(err, &refused) && strings.Contains(strings.ToLower(refused.Reason), unix.ENOENT.Error())
}

func zoneArg(zone uint16) string { return fmt.Sprintf("zone=%d", zone) }

// tupleArg names one connection. All fields are there, so that no other one is
// meant.
func tupleArg(t conntrack.Tuple) string {
	src, dst := "ct_nw_src", "ct_nw_dst"
	if t.Src.Is6() {
		src, dst = "ct_ipv6_src", "ct_ipv6_dst"
	}
	ends := fmt.Sprintf("%s=%s,%s=%s,ct_nw_proto=%d", src, t.Src, dst, t.Dst, t.Protocol)
	if t.IsICMP() {
		return fmt.Sprintf("%s,icmp_type=%d,icmp_code=%d,icmp_id=%d", ends, t.ICMPType, t.ICMPCode, t.ICMPID)
	}
	return fmt.Sprintf("%s,ct_tp_src=%d,ct_tp_dst=%d", ends, t.SrcPort, t.DstPort)
}
