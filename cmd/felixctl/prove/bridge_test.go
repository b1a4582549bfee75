package prove

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/felixlike/felixlike/cmd/felixctl/trace"
	"github.com/felixlike/felixlike/cmd/felixctl/trace/cluster"
	"github.com/felixlike/felixlike/felixlike/config"
	"github.com/felixlike/felixlike/felixlike/control"
	"github.com/felixlike/felixlike/felixlike/datastore"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/ovsfwd/flowtext"
	"github.com/felixlike/felixlike/ovsfwd/openflow"
)

// serve has the agent lead to a Service with several endpoints and to one with affinity.
func serve(m *control.Model) {
	m.Settings.ServiceProxy, m.Settings.Userspace, m.ServicesKnown = true, true, true
	m.Settings.ServiceCIDRs = []netip.Prefix{netip.MustParsePrefix("10.96.0.0/16"), netip.MustParsePrefix("fd00:96::/112")}
	for i, affinity := range []time.Duration{0, time.Hour} {
		p := model.ServicePort{ID: model.ServicePortID{Namespace: "shop", Name: fmt.Sprint(i), Protocol: model.TCP, Port: 80}, Affinity: affinity}
		for _, a := range [][3]string{{"10.96.0.1", "10.10.1.7", "192.0.2.7"}, {"fd00:96::1", "fd00:10:1::7", "2001:db8::7"}} {
			f := model.Frontend{Kind: model.ClusterIP, Addr: netip.MustParseAddr(a[0]), Port: uint16(80 + i)}
			for _, e := range a[1:] {
				f.Endpoints = append(f.Endpoints, model.ServiceEndpoint{AddrPort: netip.AddrPortFrom(netip.MustParseAddr(e), 8080)})
			}
			p.Frontends = append(p.Frontends, f)
		}
		m.ServicePorts = append(m.ServicePorts, &p)
	}
}

// TestBridgeAgreesWithTrace compares what becomes of packets from one local pod to another one in the switch under openflow with the walk of single packets.
func TestBridgeAgreesWithTrace(t *testing.T) {
	names, err := filepath.Glob(cases + "/*.txtar")
	if err != nil || len(names) == 0 {
		t.Fatal(err)
	}
	r := rand.New(rand.NewPCG(5, 6))
	judged, through := 0, 0
	for i, name := range names {
		m := modelOf(t, events(t, name), "n1")
		if i%2 == 0 {
			serve(m)
		}
		st := stateOf(t, *m, config.OpenFlow)
		site := cluster.SiteOf(m, st)
		for _, f := range model.Families() {
			s := newSpace(f, []*control.Model{m}, st)
			b := newBridge(s, st.Flows)
			for _, p := range packetsOf(m, f, r, 60) {
				var from, to *model.Attachment
				for _, at := range site.Attachments {
					for _, a := range at.Addresses {
						if a == p.Packet.Source {
							from = at
						}
						if a == p.Packet.Destination {
							to = at
						}
					}
				}
				if from == nil || to == nil || from == to {
					continue
				}
				path, err := trace.Follow(p.traced, []*trace.Site{site}, nil)
				if err != nil {
					t.Fatal(err)
				}
				ends, err := b.table(0, entering(f, from.OFPort, from.MAC, site.GatewayMAC), 0)
				if err != nil {
					t.Fatal(name, err)
				}
				at, port, matched := s.at(p.Packet), uint32(0), 0
				for e, some := range ends {
					if (s.and(at, some)) != nothing {
						port = e.port
						matched++
					}
				}
				if matched != 1 {
					t.Errorf("%s: %v has %d ends", name, p.Packet, matched)
				}
				judged++
				want := uint32(0)
				if path.Fate == trace.ToPod {
					through++
					want = to.OFPort
				}
				if port != want {
					t.Errorf("%s: %v: leaves by %d, trace says %s", filepath.Base(name), p.Packet, port, path.Fate)
				}
			}
		}
	}
	t.Logf("%d packets, %d through", judged, through)
}

// TestConjunctionsInDispute: two rules allow the same packets. If the switch lacks the action of one, it depends on the conjunction that it takes whether they
// pass. That is not proved, in neither direction.
func TestConjunctionsInDispute(t *testing.T) {
	m := modelOf(t, events(t, filepath.Join(cases, "union.txtar")), "n1")
	before := stateOf(t, *m, config.OpenFlow)
	var allow []int
	for i, f := range before.Flows {
		if f.Table == 90 && slices.ContainsFunc(f.Match, func(term flowtext.Term) bool { return term.Field == openflow.ConjID }) {
			allow = append(allow, i)
		}
	}
	for _, i := range allow {
		after := *before
		after.Flows = slices.Delete(slices.Clone(before.Flows), i, i+1)
		f := model.IPv4
		if strings.Contains(before.Flows[i].String(), "ipv6") {
			f = model.IPv6
		}
		var refused *NotProved
		if _, err := compared(f, m, before, &after); !errors.As(err, &refused) || !strings.Contains(refused.Error(), "which one the switch takes is not defined") {
			t.Errorf("without %s: %v", before.Flows[i], err)
		}
	}
	if len(allow) != 4 {
		t.Errorf("%d flows, want one of each rule and family", len(allow))
	}
}

// TestLoggingRulesAgree: two rules allow the same packets, and one logs them. That makes no difference to the proof.
func TestLoggingRulesAgree(t *testing.T) {
	all := events(t, filepath.Join(cases, "union.txtar"))
	for _, e := range all {
		if p, is := e.(datastore.NetworkPolicySet); is && p.Policy.Name == "b" {
			p.Policy.Annotations = map[string]string{model.LogAnnotation: "true"}
		}
	}
	expectEqual(t, modelOf(t, all, "n1"), func(string, Difference) bool { return false })
}
