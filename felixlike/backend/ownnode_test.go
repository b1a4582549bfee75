package backend

import (
	"net"
	"net/netip"
	"testing"

	"github.com/felixlike/felixlike/managers"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/rules"
	"github.com/felixlike/felixlike/tables/nftables"
	"github.com/felixlike/felixlike/test/tablestest"
)

// The kernel refuses an admin policy in the host's table of the backend openflow. A Deny closes
// its pods toward their own node, and an Accept opens nothing. Other pods reach the node, and
// the node reaches all pods.
func TestQuarantineToOwnNode(t *testing.T) {
	udp80 := []model.PortRange{{Protocol: model.UDP, First: 80, Last: 80}}
	refused, later := model.PolicyID{Tier: model.TierAdmin, Name: "refused"}, model.PolicyID{Tier: model.TierAdmin, Name: "later"}
	for name, test := range map[string]struct {
		rule model.Rule
		// port is one that the pod reaches only while the policy is in force.
		port int
	}{
		"Deny":   {model.Rule{Name: "egress[0]", Action: model.Deny, AnyPeer: true, Ports: udp80}, 81},
		"Accept": {model.Rule{Name: "egress[0]", Action: model.Allow, AnyPeer: true, Ports: udp80}, 80},
	} {
		t.Run(name, func(t *testing.T) {
			path := tablestest.NewPath(t, "nft")
			table := nftables.New(nftables.Options{Table: nftables.HostTable, NetNS: path.Router.FD})
			t.Cleanup(func() { _ = table.Close() })
			r := rules.NewRenderer("r1", rules.NFTablesNameLength)
			chains := &looping{Chains: table}
			f := &firewall{path: path, managers: []managers.Manager{
				managers.NewHostPolicyManager("node1", r, chains, table, func(model.GroupID) []model.Member { return nil }),
			}}
			policy := model.PolicyUpdate{Policy: &model.Policy{ID: refused, Egress: []model.Rule{test.rule}}}
			list := []model.PolicyID{refused}
			f.update(model.NodeUpdate{Node: &model.Node{Name: "node1", PodCIDRs: []netip.Prefix{netip.MustParsePrefix(pods)}}})
			if test.rule.Action == model.Allow {
				list = append(list, later)
				f.update(model.PolicyUpdate{Policy: &model.Policy{ID: later, Egress: []model.Rule{{Name: "egress[0]", Action: model.Deny, AnyPeer: true, AnyPort: true}}}})
			}
			for pod, egress := range map[string]model.Applied{"10.1.0.5": {Admin: list}, "10.1.0.6": {}} {
				id := model.PodID{Namespace: "x", Name: pod}
				f.update(
					model.EndpointUpdate{Endpoint: &model.Endpoint{ID: id, Egress: egress}},
					model.AttachmentUpdate{Attachment: &model.Attachment{Pod: id, Interface: pod, Addresses: []netip.Addr{netip.MustParseAddr(pod)}}},
				)
			}
			between := func(pod string, podPort, port int) *dialogue {
				return &dialogue{
					pod:     listenIn(t, path.Sender, &net.UDPAddr{IP: net.ParseIP(pod), Port: podPort}),
					outside: listenIn(t, path.Router, &net.UDPAddr{IP: net.IPv4(192, 168, 1, 1), Port: port}),
				}
			}
			for i, refuse := range []bool{false, true, false} {
				chains.chain = ""
				if refuse {
					chains.chain = r.PolicyChain(refused, model.Egress)
				}
				f.update(policy)
				done, err := table.Apply(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				if (len(done.Refused) > 0) != refuse {
					t.Fatalf("refused: %+v", done.Refused)
				}
				d := between("10.1.0.5", 4000+i, test.port)
				d.out(t, "pod to its own node", !refuse)
				_ = d.outside.Close()
				d = between("10.1.0.6", 4000+i, test.port)
				d.out(t, "another pod to its own node", true)
				_ = d.outside.Close()
				d = between("10.1.0.5", 5000+i, 6000+i)
				d.in(t, "the node to the pod", true)
				d.out(t, "the answer of the pod", true)
			}
		})
	}
}
