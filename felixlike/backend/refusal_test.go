package backend

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/felixlike/felixlike/felixlike/config"
	"github.com/felixlike/felixlike/ipsets/kernel"
	"github.com/felixlike/felixlike/managers"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/rules"
	"github.com/felixlike/felixlike/tables"
	"github.com/felixlike/felixlike/tables/iptables"
	"github.com/felixlike/felixlike/tables/nftables"
	"github.com/felixlike/felixlike/test/tablestest"
)

// looping adds a rule to one chain: the chain jumps to itself. The kernel refuses that under
// nftables, and the driver under iptables.
type looping struct {
	managers.Chains
	chain string
}

func (l looping) UpdateChain(c tables.Chain) {
	if c.Name == l.chain {
		c.Rules = append(slices.Clone(c.Rules), tables.Rule{Action: tables.Jump{Chain: c.Name}})
	}
	l.Chains.UpdateChain(c)
}

// The kernel or the driver refuses a policy that a common chain asks. The policy's pods are closed,
// also to what other policies allow, and no others are: from then on, each chain asks its
// policies itself.
func TestRefusedPolicyInCommonChain(t *testing.T) {
	refused := model.PolicyID{Tier: model.TierNetworkPolicy, Namespace: "x", Name: "refused"}
	good := model.PolicyID{Tier: model.TierNetworkPolicy, Namespace: "x", Name: "good"}
	for name, build := range map[string]func(*tablestest.Path) ([]managers.Manager, func(context.Context) (Applied, error)){
		config.NFTables: func(p *tablestest.Path) ([]managers.Manager, func(context.Context) (Applied, error)) {
			table := nftables.New(nftables.Options{NetNS: p.Router.FD, Guard: rules.Guard("r1")})
			t.Cleanup(func() { _ = table.Close() })
			r := rules.NewRenderer("r1", rules.NFTablesNameLength)
			chains := looping{table, r.PolicyChain(refused, model.Egress)}
			endpoints := managers.NewEndpointManager(r, chains, table, managers.NewMapDispatcher(table))
			endpoints.SetCommonFrom(1)
			return []managers.Manager{
					managers.NewDeniedManager(chains, r), managers.NewStaticManager("node1", r, chains, table), managers.NewPolicyManager("node1", r, chains), endpoints,
				}, func(ctx context.Context) (Applied, error) {
					r, err := table.Apply(ctx)
					return applied(r), err
				}
		},
		config.IPTablesNFT: func(p *tablestest.Path) ([]managers.Manager, func(context.Context) (Applied, error)) {
			x := &xtables{
				table: iptables.New(iptables.Options{Variant: iptables.NFT, NetNS: p.Router.FD}),
				sets:  kernel.New(kernel.Options{NetNS: p.Router.FD}),
			}
			t.Cleanup(func() { _ = x.sets.Close() })
			r := rules.NewRenderer("r1", rules.IPTablesNameLength)
			chains := managers.NewTreeDispatcher(r, looping{x.table, r.PolicyChain(refused, model.Egress)})
			endpoints := managers.NewEndpointManager(r, chains, x.sets, chains)
			endpoints.SetCommonFrom(1)
			return []managers.Manager{
				managers.NewDeniedManager(chains, r), managers.NewStaticManager("node1", r, chains, x.sets), managers.NewPolicyManager("node1", r, chains), endpoints,
			}, x.apply
		},
	} {
		t.Run(name, func(t *testing.T) {
			path := tablestest.NewPath(t, "nft", "iptables-nft", "ipset")
			all, program := build(path)
			f := &firewall{path: path, managers: all}
			collisions := newCollisions(all)
			f.update(model.NodeUpdate{Node: &model.Node{Name: "node1", PodCIDRs: []netip.Prefix{netip.MustParsePrefix(pods)}}})
			apply := func() Applied {
				a, err := collisions.apply(t.Context(), program)
				if err != nil {
					t.Fatal(err)
				}
				return a
			}
			passes := func(pod int) bool {
				return path.Passes(t, model.UDP, address(pod), netip.MustParseAddr("10.2.0.9"), 80)
			}
			allow := model.Rule{Name: "egress[0]", Action: model.Allow, AnyPeer: true, Ports: []model.PortRange{{Protocol: model.UDP, First: 80, Last: 80}, {Protocol: model.UDP, First: tablestest.Sentinel, Last: tablestest.Sentinel}}}
			f.update(model.PolicyUpdate{Policy: &model.Policy{ID: good, Egress: []model.Rule{allow}}})
			f.update(model.PolicyUpdate{Policy: &model.Policy{ID: refused}})
			for i := range 8 {
				list := []model.PolicyID{good}
				if i >= 4 {
					list = []model.PolicyID{good, refused}
				}
				id := model.PodID{Namespace: "x", Name: fmt.Sprint(i)}
				f.update(
					model.EndpointUpdate{Endpoint: &model.Endpoint{ID: id, Egress: model.Applied{NetworkPolicies: list}}},
					model.AttachmentUpdate{Attachment: &model.Attachment{Pod: id, Interface: id.Name, Addresses: []netip.Addr{address(i)}}},
				)
			}
			if a := apply(); len(a.Refused) > 0 {
				t.Fatalf("refused before: %+v", a.Refused)
			}
			if !passes(0) || !passes(4) {
				t.Fatal("wrong verdicts before the refusal")
			}
			f.update(model.PolicyUpdate{Policy: &model.Policy{ID: refused, Egress: []model.Rule{allow}}})
			a := apply()
			if len(a.Refused) == 0 || !strings.Contains(a.Refused[0].Name, "pout-") {
				t.Errorf("refused: %+v", a.Refused)
			}
			for i := range 8 {
				if got := passes(i); got != (i < 4) {
					t.Errorf("pod %d: passes %v; refused %+v", i, got, a.Refused)
				}
			}
		})
	}
}

// address returns the address of a pod. The first has that of the sender of sentinels.
func address(pod int) netip.Addr { return netip.AddrFrom4([4]byte{10, 1, 0, byte(2 + pod)}) }
