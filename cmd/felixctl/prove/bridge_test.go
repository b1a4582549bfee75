package prove

import (
	"errors"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/felixlike/felixlike/cmd/felixctl/trace"
	"github.com/felixlike/felixlike/cmd/felixctl/trace/cluster"
	"github.com/felixlike/felixlike/felixlike/config"
	"github.com/felixlike/felixlike/felixlike/control"
	"github.com/felixlike/felixlike/felixlike/datastore"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/ovsfwd/flowtext"
	"github.com/felixlike/felixlike/ovsfwd/openflow"
)

// TestBridgeAgreesWithTrace compares what becomes of packets from one local pod to another one in the switch under openflow with the walk of single packets.
func TestBridgeAgreesWithTrace(t *testing.T) {
	names, err := filepath.Glob(cases + "/*.txtar")
	if err != nil || len(names) == 0 {
		t.Fatal(err)
	}
	r := rand.New(rand.NewPCG(5, 6))
	judged, through := 0, 0
	for _, name := range names {
		m := modelOf(t, events(t, name), "n1")
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
