package managers

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/rules"
)

// ownNodeUpdates attach a pod with these egress policies.
func ownNodeUpdates(name, address string, egress model.Applied) []model.Update {
	id := pod(name)
	return []model.Update{
		model.AttachmentUpdate{Attachment: &model.Attachment{Pod: id, Interface: name, Addresses: []netip.Addr{addr(address)}}},
		model.EndpointUpdate{Endpoint: &model.Endpoint{ID: id, Egress: egress}},
	}
}

func ordered(t model.Tier, name string) model.PolicyID { return model.PolicyID{Tier: t, Name: name} }

func egressPolicy(id model.PolicyID, groups ...model.GroupID) model.PolicyUpdate {
	return model.PolicyUpdate{Policy: &model.Policy{ID: id, Egress: []model.Rule{
		{Name: "egress[0]", Action: model.Deny, AnyPeer: len(groups) == 0, Peers: groups, AnyPort: true},
	}}}
}

// TestOwnNodeLists: chains exist for the pods that an ordered tier judges, and only then.
func TestOwnNodeLists(t *testing.T) {
	for name, length := range map[string]int{"nftables": rules.NFTablesNameLength, "iptables": rules.IPTablesNameLength} {
		t.Run(name, func(t *testing.T) {
			r := newRecorder()
			m := NewOwnNodeManager(rules.NewRenderer("flx-gw0", length), r, r)
			deny, baseline, np := ordered(model.TierAdmin, "deny"), ordered(model.TierBaseline, "base"), model.PolicyID{Tier: model.TierNetworkPolicy, Namespace: "x", Name: "np"}
			send(m, slices.Concat([]model.Update{egressPolicy(deny), egressPolicy(baseline), egressPolicy(np)},
				ownNodeUpdates("a", "10.0.0.1", model.Applied{NetworkPolicies: []model.PolicyID{np}}),
				ownNodeUpdates("b", "10.0.0.2", model.Applied{NetworkPolicies: []model.PolicyID{np}, Baseline: []model.PolicyID{baseline}}))...)
			if len(r.chains)+len(r.sets) != 0 {
				t.Errorf("without a pod that an ordered tier judges there are %v, %v", r.chains, r.sets)
			}
			both := model.Applied{Admin: []model.PolicyID{deny}, NetworkPolicies: []model.PolicyID{np}, Baseline: []model.PolicyID{baseline}}
			send(m, ownNodeUpdates("a", "10.0.0.1", both)...)
			own := r.chainsWith("own-")
			if len(own) != 1 || !strings.Contains(r.chains[own[0]], "clusternetworkpolicy/deny") || strings.Contains(r.chains[own[0]], "base") || !strings.Contains(r.chains[rules.ChainOwnNode], "goto own-") {
				t.Errorf("chains %v", r.chains)
			}
			if members := membersOf(r); len(members) != 1 || members[0] != "10.0.0.1" {
				t.Errorf("members %v", members)
			}
			send(m, ownNodeUpdates("b", "10.0.0.2", model.Applied{Baseline: []model.PolicyID{baseline}})...)
			if own = r.chainsWith("own-"); len(own) != 2 || len(membersOf(r)) != 2 {
				t.Errorf("chains %v, sets %v", own, r.sets)
			}
			// The datastore has lost a pod whose containers may still run.
			send(m, model.EndpointRemove{ID: pod("a")}, model.AttachmentRemove{Pod: pod("b"), Interface: "b"})
			if own = r.chainsWith("own-"); len(own) != 1 || !strings.Contains(r.chains[own[0]], "jump") || len(membersOf(r)) != 1 {
				t.Errorf("of a pod that is still attached: chains %v, sets %v", own, r.sets)
			}
			send(m, model.PolicyRemove{ID: deny})
			if own = r.chainsWith("own-"); len(own) != 1 || strings.Contains(r.chains[own[0]], "jump") || !strings.Contains(r.chains[own[0]], "drop") {
				t.Errorf("of a pod that is still attached, without its policy: %v", r.chains)
			}
			send(m, model.AttachmentRemove{Pod: pod("a"), Interface: "a"})
			if len(r.chains)+len(r.sets) != 0 {
				t.Errorf("left over: %v, %v", r.chains, r.sets)
			}
		})
	}
}

// membersOf returns the members of the sets of lists.
func membersOf(r *recorder) []string {
	var all []string
	for name, set := range r.sets {
		for m := range set {
			if !strings.HasPrefix(name, "own-node-") {
				all = append(all, m.String())
			}
		}
	}
	return all
}

// TestOwnNodeSet: under nftables a set has the pods that an ordered tier judges, over all lists.
func TestOwnNodeSet(t *testing.T) {
	r := newRecorder()
	m := NewOwnNodeManager(rules.NewRenderer("flx-gw0", rules.NFTablesNameLength), r, r)
	one, two := ordered(model.TierAdmin, "one"), ordered(model.TierAdmin, "two")
	applied := func(all ...model.PolicyID) model.Applied { return model.Applied{Admin: all} }
	send(m, egressPolicy(one), egressPolicy(two))
	for _, step := range []struct {
		updates []model.Update
		want    int
	}{
		{ownNodeUpdates("a", "10.0.0.1", applied(one)), 1},
		{ownNodeUpdates("b", "10.0.0.2", applied(one, two)), 2},
		{ownNodeUpdates("a", "10.0.0.1", applied(two)), 2},
		{ownNodeUpdates("b", "10.0.0.2", applied()), 1},
		{ownNodeUpdates("b", "10.0.0.2", applied(two)), 2},
	} {
		send(m, step.updates...)
		if set := r.sets[rules.OwnNodeSet(model.IPv4)]; len(set) != step.want || !strings.Contains(r.chains[rules.ChainOwnNode], "own-node-4 drop") {
			t.Errorf("set %v, want %d members; chain %s", set, step.want, r.chains[rules.ChainOwnNode])
		}
	}
	send(m, slices.Concat(ownNodeUpdates("a", "10.0.0.1", applied()), ownNodeUpdates("b", "10.0.0.2", applied()))...)
	if len(r.sets) != 0 {
		t.Errorf("left over: %v", r.sets)
	}
}

// TestOwnNodeCollision: two lists whose chains would have one name are closed.
func TestOwnNodeCollision(t *testing.T) {
	r := newRecorder()
	m := NewOwnNodeManager(rules.NewRenderer("flx-gw0", rules.NFTablesNameLength).Narrowed(0, 0), r, r)
	one, two := ordered(model.TierAdmin, "one"), ordered(model.TierAdmin, "two")
	send(m, slices.Concat([]model.Update{egressPolicy(one), egressPolicy(two)},
		ownNodeUpdates("a", "10.0.0.1", model.Applied{Admin: []model.PolicyID{one}}),
		ownNodeUpdates("b", "10.0.0.2", model.Applied{Admin: []model.PolicyID{two}}))...)
	if own := r.chainsWith("own-"); len(own) != 1 || strings.Contains(r.chains[own[0]], "jump") || !strings.Contains(r.chains[own[0]], "drop") || len(membersOf(r)) != 2 {
		t.Errorf("chains %v, sets %v", own, r.sets)
	}
	send(m, ownNodeUpdates("b", "10.0.0.2", model.Applied{})...)
	if own := r.chainsWith("own-"); len(own) != 1 || !strings.Contains(r.chains[own[0]], "clusternetworkpolicy/one") || len(membersOf(r)) != 1 {
		t.Errorf("chains %v, sets %v", own, r.sets)
	}
}

// TestHostPolicyGroups: the host's table has the groups that ordered egress policies ask,
// with the members that came before the policy and after it, and nothing when these go.
func TestHostPolicyGroups(t *testing.T) {
	r := newRecorder()
	known := map[model.GroupID][]model.Member{"a1": {model.AddressMember(addr("10.0.0.9"))}}
	m := NewHostPolicyManager("n", rules.NewRenderer("flx-gw0", rules.NFTablesNameLength), r, r, func(id model.GroupID) []model.Member { return known[id] })
	node := model.NodeUpdate{Node: &model.Node{Name: "n", PodCIDRs: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/24")}}}
	deny, np := ordered(model.TierAdmin, "deny"), model.PolicyID{Tier: model.TierNetworkPolicy, Namespace: "x", Name: "np"}
	added := func(id model.GroupID, address string) model.GroupUpdate {
		return model.GroupUpdate{Group: model.Group{ID: id, Kind: model.Addresses}, Added: []model.Member{model.AddressMember(addr(address))}}
	}
	send(m, node, added("a2", "10.0.0.8"), egressPolicy(np, "a2"))
	if len(r.chains)+len(r.sets) != 0 {
		t.Errorf("of a NetworkPolicy there are %v, %v", r.chains, r.sets)
	}
	send(m, slices.Concat([]model.Update{egressPolicy(deny, "a1"), added("a1", "10.0.0.7")},
		ownNodeUpdates("p", "10.0.0.1", model.Applied{Admin: []model.PolicyID{deny}}))...)
	if set := r.sets["a1-4"]; len(set) != 2 || len(r.chainsWith("aout-")) != 1 || r.chains[rules.ChainDeniedOut] == "" {
		t.Errorf("chains %v, sets %v", r.chains, r.sets)
	}
	send(m, model.DenialsUpdate{Reported: true})
	for _, chain := range []string{rules.ChainDeniedOut, rules.ChainRejectedOut} {
		if !strings.Contains(r.chains[chain], rules.ReportComment) {
			t.Errorf("no report: %s", r.chains[chain])
		}
	}
	logs := egressPolicy(deny, "a1")
	logs.Policy.Egress[0].Log, logs.Policy.Egress[0].Action = true, model.Reject
	send(m, logs, model.LogsUpdate{Reported: true})
	if chain := r.chains[r.chainsWith("aout-")[0]]; !strings.Contains(chain, "report log-") || !strings.Contains(chain, "goto "+rules.ChainRejectedOut) {
		t.Errorf("neither log nor reject: %s", chain)
	}
	send(m, append(ownNodeUpdates("p", "10.0.0.1", model.Applied{}), model.PolicyRemove{ID: deny}, model.GroupRemove{ID: "a1"})...)
	if len(r.chains)+len(r.sets) != 0 {
		t.Errorf("left over: %v, %v", r.chains, r.sets)
	}
}
