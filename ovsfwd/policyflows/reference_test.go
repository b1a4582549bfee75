package policyflows

import (
	"context"
	"net/netip"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/ovsfwd/flowtext"
	"github.com/felixlike/felixlike/ovsfwd/openflow"
	"github.com/felixlike/felixlike/ovsfwd/pipeline"
	"github.com/felixlike/felixlike/test/ovstest"
)

// referenceIDs gives rules the ids of the reference's one allocator.
func referenceIDs(r RuleID) uint32 {
	return map[layer]uint32{
		adminEgress: 1, ruleEgress: 2, ruleIngress: 3, adminIngress: 4, baselineEgress: 5, baselineIngress: 6,
	}[layerOf(r.Policy.Tier, r.Direction)]
}

// referenceStore has the scenarios' policies. Their pods differ but in number,
// so that they fit into one store.
func referenceStore(families ...model.Family) (*Store, *recorder) {
	r := newRecorder()
	s := New(Options{Flows: r, HashID: referenceIDs})
	s.SetFamilies(families)
	nginx := networkPolicy("test-network-policy")
	cnp := model.PolicyID{Tier: model.TierAdmin, Name: "cnp0"}
	baseE := model.PolicyID{Tier: model.TierBaseline, Name: "egress"}
	baseI := model.PolicyID{Tier: model.TierBaseline, Name: "ingress"}
	for id, m := range map[model.GroupID][]model.Member{
		"anginx": members("10.10.1.2", "10.10.1.3"), "adns": members("10.10.1.8"), "anot": members("10.10.1.7"),
		"nnet": members("10.0.10.0/24"), "atwo": members("10.10.1.9", "10.10.1.7"),
	} {
		s.UpdateGroup(id, m, nil)
	}
	s.SetPolicy(&model.Policy{
		ID:      nginx,
		Ingress: []model.Rule{{Action: model.Allow, Peers: []model.GroupID{"anginx"}, Ports: []model.PortRange{tcp(80, 80)}}},
		Egress:  []model.Rule{{Action: model.Allow, Peers: []model.GroupID{"anginx"}, Ports: []model.PortRange{tcp(80, 80)}}},
	})
	s.SetPolicy(&model.Policy{
		ID: cnp, Precedence: model.Precedence{Tier: 250, Priority: 10},
		Ingress: []model.Rule{{Action: model.Deny, Peers: []model.GroupID{"anot"}, Ports: []model.PortRange{tcp(80, 80)}}},
		Egress: []model.Rule{{
			Action: model.Allow, Peers: []model.GroupID{"adns"},
			Ports: []model.PortRange{{Protocol: model.UDP, First: 53, Last: 53}},
		}},
	})
	s.SetPolicy(&model.Policy{
		ID: baseE, Precedence: model.Precedence{Priority: 10},
		Egress: []model.Rule{{Action: model.Deny, Peers: []model.GroupID{"nnet"}, AnyPort: true}},
	})
	s.SetPolicy(&model.Policy{
		ID: baseI, Precedence: model.Precedence{Priority: 10},
		Ingress: []model.Rule{{Action: model.Deny, Peers: []model.GroupID{"atwo"}, Ports: []model.PortRange{tcp(8080, 8080)}}},
	})
	pod := func(name string, address string, port uint32, ids ...model.PolicyID) {
		p := Pod{Interface: name, Port: port, Open: true, Ingress: apply(ids...), Egress: apply(ids...)}
		if address != "" {
			p.Addresses = addrs(address)
		}
		s.SetPod(p)
	}
	pod("nginx1", "10.10.1.2", 3, nginx)
	pod("nginx2", "10.10.1.3", 4, nginx)
	pod("server", "10.10.1.6", 0x19c, cnp)
	pod("baseline1", "10.10.1.10", 0, baseE)
	pod("baseline2", "10.10.1.11", 0, baseE)
	pod("baseline3", "", 0xb, baseI)
	pod("baseline4", "", 0xc, baseI)
	s.Complete()
	return s, r
}

// forwardingRows are the rows of these scenarios that depend on no policy: they
// are compared where they are rendered.
func forwardingRow(id string) bool {
	return slices.Contains([]string{"F054", "F061", "F064", "F065", "F066", "F073", "F074", "F077", "F078", "F083", "F084", "F089"}, id)
}

// misprints are corrected here: the rest of each row is compared.
func misprints() map[string]string {
	return map[string]string{
		"F093": "table=60,priority=80,conj_id=5,ip actions=load:0x5->NXM_NX_REG3[],load:0x1->NXM_NX_REG0[20],resubmit(,61)",
	}
}

func policyRows(t *testing.T) []ovstest.Row {
	t.Helper()
	var rows []ovstest.Row
	for _, row := range ovstest.Reference(t, "K8SNP", "ACNP", "BASELINE-E", "BASELINE-I") {
		if forwardingRow(row.ID) {
			continue
		}
		if right := misprints()[row.ID]; right != "" {
			var err error
			if row.Flow, err = ovstest.ParseFlow(right); err != nil {
				t.Fatal(err)
			}
		}
		rows = append(rows, row)
	}
	if len(rows) != 34 {
		t.Fatalf("only %d rows", len(rows))
	}
	return rows
}

// whyExtra explains the flows that the reference does not have.
func whyExtra(f *flowtext.Flow) string {
	ethType, _ := f.Term(openflow.EthType)
	switch {
	case ethType.Value.Lo == unix.ETH_P_IPV6:
		return "IPv6 twin"
	case f.Table == pipeline.TableEgressMetrics, f.Table == pipeline.TableIngressMetrics:
		return "counters, named by the reference and not printed"
	case f.Table == pipeline.TableOutput:
		return "without policy nothing leaves but packets of allowed connections"
	}
	return ""
}

func TestReferenceFlows(t *testing.T) {
	for _, families := range [][]model.Family{{model.IPv4}, model.Families()} {
		_, r := referenceStore(families...)
		ovstest.Comparison{Extra: whyExtra}.Check(t, r.parsed(t), policyRows(t))
	}
}

// TestReferenceOnTheSwitch installs the policies' flows beside those of the
// node, reads all back and holds them against the rows.
func TestReferenceOnTheSwitch(t *testing.T) {
	b := ovstest.NewBridge(t)
	_, r := referenceStore(model.IPv4)
	cidr := netip.MustParsePrefix("10.10.1.0/24")
	gateway := []netip.Addr{cidr.Addr().Next()}
	base := pipeline.Base(pipeline.Node{
		Mode: pipeline.Full, Userspace: b.Userspace(), GatewayPort: 2, TunnelPort: 1, GatewayMAC: b.Config.GatewayMAC,
		PodCIDRs: []netip.Prefix{cidr}, Gateways: gateway, HostAddresses: gateway, AdminIngress: true,
	})
	install(t, b, append(r.all(), base...))
	nodes := map[string]bool{}
	for _, f := range base {
		p, err := ovstest.ParseFlow(f.String())
		if err != nil {
			t.Fatal(err)
		}
		nodes[p.String()] = true
	}
	ovstest.Comparison{Extra: func(f *flowtext.Flow) string {
		if nodes[f.String()] {
			return "of the node"
		}
		return whyExtra(f)
	}}.Check(t, b.Installed(), policyRows(t))
}

// install sends flows in one bundle.
func install(t *testing.T, b *ovstest.Bridge, flows []openflow.Flow) *openflow.Conn {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	t.Cleanup(cancel)
	conn, err := openflow.Dial(ctx, b.Management())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	mods := func(yield func(openflow.FlowMod, error) bool) {
		for _, f := range flows {
			if !yield(openflow.FlowMod{Command: openflow.Add, Flow: f}, nil) {
				return
			}
		}
	}
	if err := conn.Bundle(ctx, mods); err != nil {
		t.Fatal(err)
	}
	return conn
}
