package carry

import (
	"context"
	"errors"
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/felixlike/felixlike/ovsfwd/conntrack"
	"github.com/felixlike/felixlike/ovsfwd/openflow"
	"github.com/felixlike/felixlike/ovsfwd/pipeline"
	"github.com/felixlike/felixlike/ovsfwd/vswitchd"
)

// zone is the connections of the pipeline's zone, wherever they are tracked.
type zone interface {
	dump(ctx context.Context) ([]conntrack.Connection, error)
	// loosen turns checks off that end connections for good.
	loosen(ctx context.Context) error
	// learn writes connections to the zone.
	learn(ctx context.Context, seeds []seed) (int, error)
	// drop forgets connections of TCP.
	drop(ctx context.Context, obsolete []conntrack.Connection) (int, error)
	// services returns the connections that the bridge leads to Services, and those of all kinds with another port. dropServices forgets some of the first.
	services(ctx context.Context) (all, moved []conntrack.Connection, err error)
	dropServices(ctx context.Context, obsolete []conntrack.Connection) (int, error)
	// forget forgets the connections from and to addresses.
	forget(ctx context.Context, addrs []netip.Addr) (int, error)
	// disallow takes the mark of allowed connections from these.
	disallow(ctx context.Context, all []conntrack.Connection) (int, error)
	// tracksSCTP reports whether SCTP associations between the same addresses have
	// entries of their own.
	tracksSCTP() bool
}

// seed is a connection that the zone is to know.
type seed struct {
	bridgeTuple
	// from is the connection in the kernel.
	from conntrack.Connection
	// known is the zone's own entry, if there is one that is not right.
	known *conntrack.Connection
}

// userspaceZone is the zone of the userspace datapath, which has no interface to
// write entries. So learn sends made-up packets through conntrack that begin and
// answer a connection. They leave through no port.
type userspaceZone struct {
	client *vswitchd.Client
	dial   func() (*openflow.Conn, error)
}

func (z *userspaceZone) tracksSCTP() bool { return false }

func (z *userspaceZone) dump(ctx context.Context) ([]conntrack.Connection, error) {
	return z.client.DumpConntrack(ctx, pipeline.Zone)
}

// loosen turns the check of sequence numbers off: carried connections have made-up ones. The check also drops a request from a port whose
// former connection ended unseen, and the reset that would end that (RFC 5961, section 4), for the day that the entry lives. The
// kernel's conntrack lets both pass.
func (z *userspaceZone) loosen(ctx context.Context) error { return z.client.DisableTCPSeqCheck(ctx) }

// packetBatch bounds the packets that wait at the switch; one barrier answers each
// batch.
const packetBatch = 1024

func (z *userspaceZone) learn(ctx context.Context, seeds []seed) (int, error) {
	if len(seeds) == 0 {
		return 0, nil
	}
	var over []conntrack.Tuple
	var packets []openflow.PacketOut
	for _, s := range seeds {
		if s.known != nil && isOver(s.known) {
			over = append(over, s.known.Original)
		}
		packets = append(packets, s.packets()...)
	}
	// A packet from the middle does not reopen the entry of an ended connection.
	if _, err := z.client.FlushConnections(ctx, pipeline.Zone, over); err != nil {
		return 0, err
	}
	if err := z.send(ctx, packets); err != nil {
		return 0, err
	}
	return len(seeds), nil
}

func (z *userspaceZone) drop(ctx context.Context, obsolete []conntrack.Connection) (int, error) {
	return z.flush(ctx, pipeline.Zone, obsolete)
}

func (z *userspaceZone) services(ctx context.Context) (all, moved []conntrack.Connection, err error) {
	if all, err = z.client.DumpConntrack(ctx, pipeline.ServiceZone); err == nil && len(all) > 0 {
		moved, err = z.client.DumpConntrack(ctx, pipeline.MovedZone)
	}
	if knowsNothing(err) {
		err = nil
	}
	return all, moved, err
}

func (z *userspaceZone) dropServices(ctx context.Context, obsolete []conntrack.Connection) (int, error) {
	return z.flush(ctx, pipeline.ServiceZone, obsolete)
}

func (z *userspaceZone) flush(ctx context.Context, zone uint16, obsolete []conntrack.Connection) (int, error) {
	tuples := make([]conntrack.Tuple, len(obsolete))
	for i, k := range obsolete {
		tuples[i] = k.Original
	}
	return z.client.FlushConnections(ctx, zone, tuples)
}

func isOver(k *conntrack.Connection) bool {
	return k.Original.Protocol == unix.IPPROTO_TCP && k.State > conntrack.StateLastAck
}

func (z *userspaceZone) send(ctx context.Context, packets []openflow.PacketOut) error {
	conn, err := z.dial()
	if err != nil {
		return err
	}
	for len(packets) > 0 {
		part := packets[:min(packetBatch, len(packets))]
		packets = packets[len(part):]
		if err := conn.PacketOut(ctx, part); err != nil {
			return fmt.Errorf("teach the switch connections: %w", err)
		}
	}
	return nil
}

// packets returns the packets that create the entry: one in each direction, and a
// third for TCP. Only the third makes both ends established, so that the entry lasts
// a day and not half a minute. A connection without a reply gets one packet.
func (s *seed) packets() []openflow.PacketOut {
	directions := []conntrack.Tuple{s.Tuple}
	flags := conntrack.FlagSYN
	if s.from.Replied {
		flags = conntrack.FlagACK
		directions = append(directions, s.Tuple.Reverse())
		if s.Protocol == unix.IPPROTO_TCP {
			directions = append(directions, s.Tuple)
		}
	}
	packets := make([]openflow.PacketOut, len(directions))
	for i, t := range directions {
		packets[i] = openflow.PacketOut{
			InPort: openflow.FromNowhere, Data: conntrack.Frame(t, flags),
			Actions: []openflow.Action{openflow.CT(openflow.CTSpec{
				Commit: true, Zone: pipeline.Zone, Table: openflow.NoTable, Exec: s.marks(),
				// An entry with the wrong direction would send replies the wrong way.
				Force: i == 0,
			})},
		}
	}
	return packets
}

func (s *seed) marks() []openflow.Action {
	// The host leads it to the Service now, and gives it its port.
	allowed, all := pipeline.AllowedLabel(), pipeline.TranslatedLabels()
	all.Hi |= allowed.Hi
	return []openflow.Action{openflow.SetCTLabelBits(allowed, all), openflow.SetCTMark(s.mark())}
}

// disallow sends a made-up packet of each connection's original direction through conntrack. ovs-vswitchd
// changes the label also if the packet's sequence number is out of the window, and then nothing else.
func (z *userspaceZone) disallow(ctx context.Context, all []conntrack.Connection) (int, error) {
	allowed := pipeline.AllowedLabel()
	packets := make([]openflow.PacketOut, 0, len(all))
	for _, k := range all {
		if k.Original.Protocol == unix.IPPROTO_SCTP {
			continue // associations are flows
		}
		packets = append(packets, openflow.PacketOut{
			InPort: openflow.FromNowhere, Data: conntrack.Frame(k.Original, conntrack.FlagACK),
			Actions: []openflow.Action{openflow.CT(openflow.CTSpec{
				Commit: true, Zone: pipeline.Zone, Table: openflow.NoTable,
				Exec: []openflow.Action{openflow.SetCTLabelBits(openflow.Label{}, allowed)},
			})},
		})
	}
	if err := z.send(ctx, packets); err != nil {
		return 0, err
	}
	return len(packets), nil
}

// forget flushes connections by their tuples. Flushing ICMPv6 connections would
// crash ovs-vswitchd. For these it sends a reply with ct(commit,force): that deletes
// the connection of the reply, and a reply cannot begin a new one. Associations of
// SCTP are flows.
func (z *userspaceZone) forget(ctx context.Context, addrs []netip.Addr) (int, error) {
	forgotten, left, err := z.client.FlushConntrack(ctx, pipeline.Zone, addrs...)
	if err == nil {
		_, _, err = z.client.FlushConntrack(ctx, pipeline.MovedZone, addrs...) // TCP and UDP only
	}
	if err == nil {
		_, _, err = z.client.FlushConntrack(ctx, pipeline.ServiceZone, addrs...) // TCP and UDP only
	}
	if err == nil {
		err = z.forgetAssociations(ctx, addrs)
	}
	if len(left) == 0 {
		return forgotten, err
	}
	packets := make([]openflow.PacketOut, len(left))
	for i, k := range left {
		packets[i] = openflow.PacketOut{
			InPort: openflow.FromNowhere, Data: conntrack.Frame(k.Reply, 0),
			Actions: []openflow.Action{openflow.CT(openflow.CTSpec{Commit: true, Force: true, Zone: pipeline.Zone, Table: openflow.NoTable})},
		}
	}
	if sent := z.send(ctx, packets); sent != nil {
		return forgotten, errors.Join(err, sent)
	}
	return forgotten + len(left), err
}

func (z *userspaceZone) forgetAssociations(ctx context.Context, addrs []netip.Addr) error {
	conn, err := z.dial()
	if err != nil {
		return err
	}
	err = conn.Bundle(ctx, func(yield func(openflow.FlowMod, error) bool) {
		for _, a := range addrs {
			for _, change := range pipeline.ForgetAssociations(a) {
				if !yield(change, nil) {
					return
				}
			}
		}
	})
	if err != nil {
		return fmt.Errorf("forget SCTP associations: %w", err)
	}
	return nil
}
