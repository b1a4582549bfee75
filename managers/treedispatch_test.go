package managers

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/rules"
	"github.com/felixlike/felixlike/tables"
)

// keeper is a table driver that keeps the chains themselves.
type keeper map[string]tables.Chain

func (k keeper) UpdateChain(c tables.Chain) { k[c.Name] = c }

func (k keeper) RemoveChain(name string) { delete(k, name) }

func (k keeper) text() string {
	var names []string
	for name := range k {
		names = append(names, name)
	}
	slices.Sort(names)
	var b strings.Builder
	for _, name := range names {
		c := k[name]
		b.WriteString(c.Text())
	}
	return b.String()
}

// treeBackend is the parts of a backend with a driver without verdict maps.
type treeBackend struct {
	kept     keeper
	managers []Manager
}

func newTreeBackend() *treeBackend {
	const never = 1 << 40 // jumps of the common chains are not in the trees
	b := &treeBackend{kept: keeper{}}
	r := rules.NewRenderer("flx-gw0", rules.IPTablesNameLength)
	trees := NewTreeDispatcher(r, b.kept)
	endpoints := NewEndpointManager(r, b.kept, newRecorder(), trees)
	endpoints.SetCommonFrom(never)
	b.managers = []Manager{
		NewDeniedManager(trees, r),
		NewStaticManager("node1", r, trees, newRecorder()),
		NewPolicyManager("node1", r, b.kept),
		endpoints,
	}
	return b
}

func (b *treeBackend) send(updates ...model.Update) {
	for _, m := range b.managers {
		send(m, updates...)
	}
}

func treeNode() model.NodeUpdate {
	return model.NodeUpdate{Node: &model.Node{
		Name: "node1", PodCIDRs: []netip.Prefix{netip.MustParsePrefix("10.10.0.0/22"), netip.MustParsePrefix("fd00:10::/112")},
	}}
}

// treePods are the updates for pods of both families, each with a policy of
// every tier in both directions.
func treePods(n int) []model.Update {
	updates := []model.Update{treeNode()}
	for i := range n {
		name := fmt.Sprintf("p%d", i)
		applied := model.Applied{}
		for _, tier := range []model.Tier{model.TierAdmin, model.TierNetworkPolicy, model.TierBaseline} {
			id := model.PolicyID{Tier: tier, Namespace: "x", Name: fmt.Sprintf("t%d", i%7)}
			all := []model.Rule{
				{Name: "one", Action: model.Deny, AnyPeer: true, Ports: []model.PortRange{{Protocol: model.TCP, First: 1, Last: 1}}},
				{Name: "all", Action: model.Allow, AnyPeer: true, AnyPort: true},
			}
			updates = append(updates, model.PolicyUpdate{Policy: &model.Policy{ID: id, Ingress: all, Egress: all}})
			switch tier {
			case model.TierAdmin:
				applied.Admin = append(applied.Admin, id)
			case model.TierNetworkPolicy:
				applied.NetworkPolicies = append(applied.NetworkPolicies, id)
			default:
				applied.Baseline = append(applied.Baseline, id)
			}
		}
		updates = append(updates,
			model.EndpointUpdate{Endpoint: &model.Endpoint{ID: pod(name), Ingress: applied, Egress: applied}},
			attachment(name, "veth-"+name, fmt.Sprintf("10.10.%d.%d", (i+2)/256, (i+2)%256), fmt.Sprintf("fd00:10::%x", i+2)))
	}
	return updates
}

// TestTreesDoNotDependOnTheOrderOfUpdates: the same chains result from every order of updates and of applies:
// a restart writes nothing.
func TestTreesDoNotDependOnTheOrderOfUpdates(t *testing.T) {
	updates := treePods(60)
	once := newTreeBackend()
	once.send(updates...)
	want := once.kept.text()
	for seed := range uint64(20) {
		r := rand.New(rand.NewPCG(seed, 0))
		b := newTreeBackend()
		shuffled := slices.Clone(updates)
		r.Shuffle(len(shuffled), func(i, j int) { shuffled[i], shuffled[j] = shuffled[j], shuffled[i] })
		// A pod that is gone in the end.
		b.send(attachment("late", "veth-late", "10.10.3.77"))
		for len(shuffled) > 0 {
			n := min(len(shuffled), 1+r.IntN(100))
			b.send(shuffled[:n]...)
			shuffled = shuffled[n:]
		}
		b.send(model.AttachmentRemove{Pod: pod("late"), Interface: "veth-late"})
		if d := cmp.Diff(want, b.kept.text()); d != "" {
			t.Fatalf("seed %d (-at once +in pieces):\n%s", seed, d)
		}
	}
}

// The rules that close a direction stay behind the tree, and no rule asks a map.
func TestTreesStandWhereMapsWould(t *testing.T) {
	b := newTreeBackend()
	b.send(treePods(2)...)
	b.send(attachment("c", "veth-c", "10.10.0.9"))
	r := rules.NewRenderer("flx-gw0", rules.IPTablesNameLength)
	var applied model.Applied
	for _, u := range treePods(2) {
		if e, ok := u.(model.EndpointUpdate); ok && e.Endpoint.ID == pod("p1") {
			applied = e.Endpoint.Egress
		}
	}
	want := []string{
		"src 10.10.0.3/32 goto " + r.AppliedChain(model.Egress, applied),
		"src 10.10.0.9/32 goto denied-out",
		"src 10.10.0.0/22 drop",
	}
	var got []string
	for _, rule := range b.kept[rules.ChainEgress].Rules {
		if slices.Contains(want, rule.String()) {
			got = append(got, rule.String())
		}
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("chain %s:\n%s%s", rules.ChainEgress, b.kept.text(), d)
	}
	if text := b.kept.text(); strings.Contains(text, "vmap") {
		t.Errorf("a map is asked:\n%s", text)
	}
	b.send(model.AttachmentRemove{Pod: pod("c"), Interface: "veth-c"})
	if text := b.kept.text(); strings.Contains(text, "10.10.0.9") {
		t.Errorf("the removed pod is still dispatched:\n%s", text)
	}
}

// TestPathsFitIntoNFTables: nf_tables takes no path of more than 16 chains, the base chain among them. Under
// iptables-nft, the base chain is FORWARD, and the chain below it is ours.
func TestPathsFitIntoNFTables(t *testing.T) {
	b := newTreeBackend()
	b.send(treePods(1000)...)
	var depth func(name string) int
	known := map[string]int{}
	depth = func(name string) int {
		if d, ok := known[name]; ok {
			return d
		}
		c := b.kept[name]
		deepest := 0
		for _, next := range c.References() {
			deepest = max(deepest, depth(next))
		}
		known[name] = deepest + 1
		return deepest + 1
	}
	if d := 1 + depth(rules.ChainForward); d != 9 {
		t.Errorf("the longest path has %d chains, want 9 of at most 16", d)
	}
	for name, c := range b.kept {
		for _, next := range c.References() {
			if _, ok := b.kept[next]; !ok {
				t.Errorf("chain %s refers to %s, which is not there", name, next)
			}
		}
	}
}
