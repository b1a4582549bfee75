package policyflows

import (
	"slices"
	"sync/atomic"
	"testing"

	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/ovsfwd/conntrack"
	"github.com/felixlike/felixlike/ovsfwd/openflow"
	"github.com/felixlike/felixlike/ovsfwd/pipeline"
	"github.com/felixlike/felixlike/test/ovstest"
)

// TestLogMetersOfTenants: no rule of a policy with a namespace shares a meter with a policy of the
// cluster, whatever its id.
func TestLogMetersOfTenants(t *testing.T) {
	known, shared := LogMeters(), map[uint32]bool{}
	for _, namespace := range []string{"", "tenant"} {
		used := map[uint32]bool{}
		for id := range uint32(2 * logMeters) {
			used[(&rule{id: id, policy: &policy{side: side{id: model.PolicyID{Namespace: namespace}}}}).logMeter()] = true
		}
		for meter := range used {
			if shared[meter] || !slices.Contains(known, meter) {
				t.Errorf("meter %d of a policy in namespace %q", meter, namespace)
			}
			shared[meter] = true
		}
	}
}

// TestLogOfOneRule: a flood on one rule takes no reports of another, and is bounded itself.
func TestLogOfOneRule(t *testing.T) {
	b := ovstest.NewBridge(t)
	s, p := onSwitch(t, b)
	id := model.PolicyID{Tier: model.TierAdmin, Name: "guard"}
	deny := func(name string, port uint16) model.Rule {
		return model.Rule{Name: name, Action: model.Deny, AnyPeer: true, Ports: []model.PortRange{tcp(port, port)}, Log: true}
	}
	s.SetPolicy(&model.Policy{ID: id, Egress: []model.Rule{deny("noisy", 80), deny("quiet", 81)}})
	pod := testPod(3, model.Applied{}, apply(id))
	s.SetPod(pod)
	s.Log(true)
	s.Complete()
	conn, err := openflow.Dial(b.Context(), b.Management())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	const perSecond = 20
	if err := conn.AddMeters(b.Context(), LogMeters(), perSecond); err != nil {
		t.Fatal(err)
	}
	if _, err := p.Apply(b.Context()); err != nil {
		t.Fatal(err)
	}
	ids := map[uint32]string{}
	for n, r := range s.LogRules() {
		ids[n] = r.Rule.Name
	}
	reports := map[string]*atomic.Int64{"noisy": {}, "quiet": {}}
	if err := conn.Listen(b.Context(), LogID, ReportLength, func(in openflow.PacketIn) { reports[ids[LoggedID(in)]].Add(1) }); err != nil {
		t.Fatal(err)
	}
	const sent = 2000
	var all []openflow.PacketOut
	for n := range sent + 1 {
		tuple := conntrack.Tuple{Protocol: 6, Src: pod.Addresses[0], Dst: pod.Addresses[0].Next(), SrcPort: 1000, DstPort: 80}
		if n == sent {
			tuple.DstPort = 81
		}
		all = append(all, openflow.PacketOut{
			InPort: openflow.FromNowhere, Data: conntrack.Frame(tuple, conntrack.FlagSYN),
			Actions: []openflow.Action{openflow.Resubmit(pipeline.TableAdminEgress)},
		})
	}
	if err := conn.PacketOut(b.Context(), all); err != nil {
		t.Fatal(err)
	}
	ovstest.Poll(t, func() error {
		if reports["quiet"].Load() == 0 {
			return errDiff("no report of the quiet rule")
		}
		return nil
	})
	if n := reports["noisy"].Load(); n < perSecond || n > sent/4 {
		t.Errorf("%d of %d packets of the noisy rule were reported", n, sent)
	}
}
