package managers

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/ovsfwd/openflow"
	"github.com/felixlike/felixlike/ovsfwd/pipeline"
)

// flowGroups keeps the flows of each group as text.
type flowGroups map[string]string

func (g flowGroups) SetFlows(key string, render func() []openflow.Flow) {
	var lines []string
	for _, f := range render() {
		lines = append(lines, f.String())
	}
	g[key] = strings.Join(lines, "\n")
}

func (g flowGroups) RemoveFlows(key string) { delete(g, key) }

// agree fails the test if two flows with the same match do not do the same.
func (g flowGroups) agree(t *testing.T) {
	t.Helper()
	matches := map[string]string{}
	for group, text := range g {
		for line := range strings.Lines(text) {
			match, actions, _ := strings.Cut(strings.TrimSpace(line), " actions=")
			if other, found := matches[match]; found && other != actions {
				t.Errorf("%s: %s is of another group, too", group, match)
			}
			matches[match] = actions
		}
	}
}

func TestForwardingMode(t *testing.T) {
	flows := flowGroups{}
	m := NewForwardingManager("n1", pipeline.Node{GatewayPort: 2, TunnelPort: 1, GatewayMAC: make([]byte, 6), Userspace: true}, flows)
	pod := model.PodID{Namespace: "x", Name: "a"}
	m.OnUpdate(model.NodeUpdate{Node: &model.Node{Name: "n1", PodCIDRs: []netip.Prefix{netip.MustParsePrefix("10.10.0.0/24")}}})
	m.OnUpdate(model.AttachmentUpdate{Attachment: &model.Attachment{
		Pod: pod, OFPort: 3, MAC: []byte{2, 0, 0, 0, 0, 1}, Addresses: []netip.Addr{netip.MustParseAddr("10.10.0.2")},
	}})
	check := func(when, base, endpoint string) {
		t.Helper()
		m.CompleteDeferredWork()
		if !strings.Contains(flows["base"], base) {
			t.Errorf("%s: base has no %q:\n%s", when, base, flows["base"])
		}
		if !strings.Contains(flows["pod x/a"], endpoint) {
			t.Errorf("%s: pod has no %q:\n%s", when, endpoint, flows["pod x/a"])
		}
	}
	check("at first", "set_field:0x2->reg1,set_field:0x10000/0x10000->reg0,goto_table:110", "reg0,goto_table:110")
	m.SetMode(pipeline.Full)
	check("full", "ct(table=31,zone=65520)", "reg0,goto_table:90")
	check("own prefix", "nw_dst=10.10.0.0/24 actions=drop", "")

	m.OnUpdate(model.HostAddressesUpdate{Addresses: []netip.Addr{netip.MustParseAddr("192.168.77.100")}})
	check("addresses", "nw_src=192.168.77.100 actions=goto_table:105", "")

	admin := &model.Policy{ID: model.PolicyID{Tier: model.TierAdmin, Name: "p"}, Ingress: make([]model.Rule, 1)}
	m.OnUpdate(model.PolicyUpdate{Policy: admin})
	check("admin tier", "", "reg0,goto_table:85")
	m.OnUpdate(model.PolicyUpdate{Policy: &model.Policy{ID: admin.ID, Egress: make([]model.Rule, 1)}})
	check("its egress only", "", "reg0,goto_table:90")
	m.OnUpdate(model.PolicyUpdate{Policy: admin})
	m.OnUpdate(model.PolicyUpdate{Policy: &model.Policy{ID: model.PolicyID{Tier: model.TierNetworkPolicy, Name: "p"}, Ingress: make([]model.Rule, 1)}})
	check("admin tier again", "", "reg0,goto_table:85")
	m.OnUpdate(model.PolicyRemove{ID: admin.ID})
	check("removed", "", "reg0,goto_table:90")

	m.OnUpdate(model.PolicyUpdate{Policy: &model.Policy{ID: model.PolicyID{Tier: model.TierBaseline, Name: "p"}, Egress: make([]model.Rule, 1)}})
	check("egress of an ordered tier", "reg5=0,ct_state=+new+trk,nw_frag=later,nw_src=10.10.0.0/24 actions=drop", "")

	m.SetMode(pipeline.Steer)
	check("back", "reg0,goto_table:110", "reg0,goto_table:110")
	if strings.Contains(flows["base"], "ct(") {
		t.Error("conntrack is left")
	}
}

// TestForwardingOfASharedAddress: the interface of a pod that has gone may stay for
// a while, and the next pod have its address. Two groups of flows that disagree would
// keep the node from forwarding anything new.
func TestForwardingOfASharedAddress(t *testing.T) {
	node := pipeline.Node{GatewayPort: 2, TunnelPort: 1, GatewayMAC: make([]byte, 6)}
	full, offload := node, node
	full.Mode, offload.Offload = pipeline.Full, true
	t.Run("full", func(t *testing.T) { sharedAddress(t, full) })
	t.Run("offload", func(t *testing.T) { sharedAddress(t, offload) })
}

func sharedAddress(t *testing.T, node pipeline.Node) {
	flows := flowGroups{}
	m := NewForwardingManager("n1", node, flows)
	m.OnUpdate(model.NodeUpdate{Node: &model.Node{Name: "n1", PodCIDRs: []netip.Prefix{netip.MustParsePrefix("10.10.0.0/24"), netip.MustParsePrefix("fd00:10:10::/64")}}})
	shared := []netip.Addr{netip.MustParseAddr("10.10.0.2"), netip.MustParseAddr("fd00:10:10::2")}
	attachment := func(name string, port uint32) *model.Attachment {
		return &model.Attachment{
			Pod: model.PodID{Namespace: "x", Name: name}, Interface: "fx-" + name, OFPort: port,
			MAC: []byte{2, 0, 0, 0, 0, byte(port)}, Addresses: shared,
		}
	}
	has := func(pod string) bool { return strings.Contains(flows["pod x/"+pod], "10.10.0.2") }
	m.OnUpdate(model.AttachmentUpdate{Attachment: attachment("old", 3)})
	m.CompleteDeferredWork()
	if !has("old") {
		t.Fatal("the first pod is not forwarded")
	}
	m.OnUpdate(model.AttachmentUpdate{Attachment: attachment("new", 4)})
	m.CompleteDeferredWork()
	flows.agree(t)
	if has("old") || !has("new") {
		t.Errorf("the address is forwarded for the old pod: %v, for the new one: %v", has("old"), has("new"))
	}
	m.OnUpdate(model.AttachmentRemove{Pod: model.PodID{Namespace: "x", Name: "new"}, Interface: "fx-new"})
	m.CompleteDeferredWork()
	if !has("old") {
		t.Error("the old pod does not have its address back")
	}
}

// TestOffloadFollowsTheMode: no flow of offload is left where the switch judges, and all come back.
func TestOffloadFollowsTheMode(t *testing.T) {
	flows := flowGroups{}
	node := pipeline.Node{GatewayPort: 2, TunnelPort: 1, GatewayMAC: make([]byte, 6), Offload: true}
	local, tunnel := NewForwardingManager("n1", node, flows), NewTunnelManager("n1", model.Encap, node, flows)
	for _, u := range []model.Update{
		model.NodeUpdate{Node: &model.Node{Name: "n1", PodCIDRs: []netip.Prefix{netip.MustParsePrefix("10.10.0.0/24")}}},
		model.NodeUpdate{Node: &model.Node{
			Name: "n2", PodCIDRs: []netip.Prefix{netip.MustParsePrefix("10.10.1.0/24")}, Addresses: []netip.Addr{netip.MustParseAddr("192.168.77.101")},
		}},
		model.AttachmentUpdate{Attachment: &model.Attachment{
			Pod: model.PodID{Namespace: "x", Name: "a"}, OFPort: 3, MAC: []byte{2, 0, 0, 0, 0, 1}, Addresses: []netip.Addr{netip.MustParseAddr("10.10.0.2")},
		}},
	} {
		local.OnUpdate(u)
		tunnel.OnUpdate(u)
	}
	for _, mode := range []pipeline.Mode{pipeline.Steer, pipeline.Full, pipeline.Steer} {
		local.SetMode(mode)
		tunnel.SetMode(mode)
		local.CompleteDeferredWork()
		tunnel.CompleteDeferredWork()
		for _, group := range []string{"base", "pod x/a", "peer n2"} {
			if has := strings.Contains(flows[group], "table=33") || strings.Contains(flows[group], "goto_table:33"); has != (mode == pipeline.Steer) {
				t.Errorf("%s: %s has flows of offload: %v", mode, group, has)
			}
		}
	}
	local.SetMode(pipeline.Steer)
	tunnel.SetMode(pipeline.Steer)
	for _, active := range []bool{true, false, true} {
		for _, m := range []Manager{local, tunnel} {
			m.OnUpdate(model.OffloadUpdate{Active: active})
			m.CompleteDeferredWork()
		}
		for _, group := range []string{"base", "pod x/a", "peer n2"} {
			if has := strings.Contains(flows[group], "table=33") || strings.Contains(flows[group], "goto_table:33"); has != active {
				t.Errorf("active %v: %s has flows of offload: %v", active, group, has)
			}
		}
	}
}
