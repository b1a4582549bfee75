package prove

import (
	"errors"
	"math/rand/v2"
	"net/netip"
	"path/filepath"
	"slices"
	"testing"

	"github.com/felixlike/felixlike/cmd/felixctl/dump"
	"github.com/felixlike/felixlike/cmd/felixctl/trace"
	"github.com/felixlike/felixlike/cmd/felixctl/trace/cluster"
	"github.com/felixlike/felixlike/felixlike/config"
	"github.com/felixlike/felixlike/felixlike/control"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/tables"
)

// packet is one between a local pod and another pod or the outside, as trace and the proof take it.
type packet struct {
	traced trace.Packet
	Packet
}

// attached reports whether an address is one of a local pod.
func attached(m *control.Model, a netip.Addr) bool {
	return slices.ContainsFunc(m.Attachments, func(at control.Attachment) bool { return slices.Contains(at.Addresses, a) })
}

func packetsOf(m *control.Model, f model.Family, r *rand.Rand, n int) (all []packet) {
	var pods, ends []netip.Addr
	for _, p := range m.Pods {
		for _, a := range p.Addresses {
			if model.FamilyOf(a) != f {
				continue
			}
			ends = append(ends, a)
			if attached(m, a) {
				pods = append(pods, a)
			}
		}
	}
	if len(pods) == 0 {
		return nil
	}
	outside, icmp, requests := netip.MustParseAddr("203.0.113.9"), model.ICMP, []uint8{8, 13}
	if f == model.IPv6 {
		outside, icmp, requests = netip.MustParseAddr("2001:db8:9::9"), model.ICMPv6, []uint8{128, 139}
	}
	ends = append(ends, outside)
	for range n {
		a, b := pods[r.IntN(len(pods))], ends[r.IntN(len(ends))]
		if r.IntN(2) == 0 {
			a, b = b, a
		}
		if a == b {
			continue
		}
		protocol := []model.Protocol{model.TCP, model.UDP, model.SCTP, icmp}[r.IntN(4)]
		port := []uint16{80, 443, 5432, 53, 8080, 8443, 1, 65535, uint16(r.Uint32())}[r.IntN(9)]
		if protocol == icmp {
			port = uint16(requests[r.IntN(2)]) << 8
		}
		name := func(a netip.Addr) string {
			if a == outside {
				return "uplink"
			}
			return model.GatewayPort
		}
		all = append(all, packet{
			trace.Packet{Source: a, Destination: b, Protocol: protocol, Port: port, Conn: trace.New},
			Packet{Source: a, Destination: b, Protocol: protocol, Port: port, In: name(a), Out: name(b), Assumed: syn(protocol)},
		})
	}
	return all
}

// at returns the packets of the same classes as a packet. Its assumed conditions hold, and no others.
func (s *space) at(p Packet) packets {
	all := s.and(s.address(tables.Source, p.Source, p.Source), s.and(s.address(tables.Destination, p.Destination, p.Destination), s.protocolPorts(p.Protocol, p.Port, p.Port)))
	all = s.and(all, s.between(p.In, p.Out))
	for i, c := range s.conditions {
		v := s.not(s.variable(s.begin[flags] + i))
		if slices.Contains(p.Assumed, c) {
			v = s.variable(s.begin[flags] + i)
		}
		all = s.and(all, v)
	}
	return all
}

// syn has a first packet of TCP ask for a connection.
func syn(p model.Protocol) []string {
	if p == model.TCP {
		return []string{tables.MatchSYN{}.String()}
	}
	return nil
}

// forwarding returns the ends of new connections' packets that the host forwards.
func forwarding(t fataler, f model.Family, m *control.Model, st *dump.State) (*netfilter, map[final]packets) {
	d, err := newNetfilter(newSpace(f, []*control.Model{m}, st), st)
	if err != nil {
		t.Fatal(err)
	}
	ends, err := d.finals(ways()[0], contexts()["new"], memory{})
	if err != nil {
		t.Fatal(err)
	}
	return d, ends
}

// through returns what becomes of a new connection's packet that the host forwards.
func (d *netfilter) through(t fataler, ends map[final]packets, p Packet) bool {
	at := d.at(p)
	for e, some := range ends {
		if (d.and(at, some)) != nothing {
			return e.verdict == accepts
		}
	}
	t.Fatalf("%v has no verdict", p)
	return false
}

// TestAgreesWithTrace compares the verdicts with those of the walk of single packets.
func TestAgreesWithTrace(t *testing.T) {
	names, err := filepath.Glob(cases + "/*.txtar")
	if err != nil || len(names) == 0 {
		t.Fatal(err)
	}
	r := rand.New(rand.NewPCG(1, 2))
	judged, through := 0, 0
	for _, name := range names {
		m := modelOf(t, events(t, name), "n1")
		for _, backend := range []string{config.NFTables, "maps", config.IPTablesNFT} {
			st := stateOf(t, *m, backend)
			site := cluster.SiteOf(m, st)
			site.Flows = nil
			for _, f := range model.Families() {
				d, ends := forwarding(t, f, m, st)
				for _, p := range packetsOf(m, f, r, 30) {
					path, err := trace.Follow(p.traced, []*trace.Site{site}, nil)
					if err != nil {
						if errors.Is(err, trace.ErrElsewhere) {
							continue
						}
						t.Fatal(err)
					}
					judged++
					if path.Fate.Through() {
						through++
					}
					if got := d.through(t, ends, p.Packet); got != path.Fate.Through() {
						t.Errorf("%s, %s: %v: through %v, trace says %v", filepath.Base(name), backend, p.Packet, got, path.Fate.Through())
					}
				}
			}
		}
	}
	t.Logf("%d packets, %d through", judged, through)
}
