// Package names gives the meaning of names, numbers and addresses in a dump: policies
// and their rules, groups of pods, pods, nodes. It names every object of a model as the
// renderers do and looks the names up. So it knows only the model.
//
// It is pure. Tests use the objects that the backends render from the same model.
package names

import (
	"cmp"
	"fmt"
	"net/netip"
	"strings"

	"github.com/felixlike/felixlike/felixlike/control"
	"github.com/felixlike/felixlike/ipsets"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/ovsfwd/ovsdb"
	"github.com/felixlike/felixlike/ovsfwd/policyflows"
	"github.com/felixlike/felixlike/rules"
	"github.com/felixlike/felixlike/tables"
	"github.com/felixlike/felixlike/tables/iptables"
)

// Names are those of one model. The zero value knows none.
type Names struct {
	chains, sets map[string]string
	addresses    map[netip.Addr]string
	prefixes     map[netip.Prefix]string
	rules        map[uint32]string
	// titles are the names that authors gave rules, by policy and rule.
	titles map[string]string
	ports  map[uint32]string
	macs   map[string]string
	// frontends are the addresses of Services, with the unspecified one for NodePorts.
	frontends map[frontend]string
}

type frontend struct {
	netip.AddrPort
	model.Protocol
}

// Of returns the names of a model; of nil, those that do not depend on one.
func Of(m *control.Model) *Names {
	n := &Names{
		chains: map[string]string{}, sets: map[string]string{}, addresses: map[netip.Addr]string{},
		prefixes: map[netip.Prefix]string{}, rules: map[uint32]string{}, titles: map[string]string{}, ports: map[uint32]string{}, macs: map[string]string{},
		frontends: map[frontend]string{},
	}
	n.static()
	if m == nil {
		return n
	}
	n.policies(m)
	n.hosts(m.HostPolicies)
	n.groups(m)
	n.places(m)
	n.services(m)
	for _, e := range m.Egresses {
		if e.Address.IsValid() {
			n.setSet(rules.EgressPodsSet(e.Address).Name, "pods that leave the cluster as "+e.Address.String())
		}
	}
	return n
}

// Chain returns the purpose of a chain, "" if unknown.
func (n *Names) Chain(name string) string { return n.chains[name] }

// Set returns the contents of a set or a verdict map, "" if unknown.
func (n *Names) Set(name string) string {
	return cmp.Or(n.sets[name], n.sets[rules.WithoutVersion(name)])
}

// Address returns the owner of an address, "" if unknown.
func (n *Names) Address(a netip.Addr) string { return n.addresses[a] }

// Prefix returns the owner of a prefix, "" if unknown.
func (n *Names) Prefix(p netip.Prefix) string {
	if p.IsSingleIP() {
		return n.addresses[p.Addr()]
	}
	return n.prefixes[p]
}

// Rule returns the policy and rule of a conjunction, "" if unknown.
func (n *Names) Rule(id uint32) string { return n.rules[id] }

// RuleName returns the name that the author gave a rule, "" if there is none.
func (n *Names) RuleName(policy, rule string) string { return n.titles[policy+" "+rule] }

// titledRule returns the policy and rule of a conjunction with the rule's title, "" if unknown.
func (n *Names) titledRule(id uint32) string {
	return model.TitledRule(n.rules[id], n.titles[n.rules[id]])
}

// Port returns the owner of a port of the bridge, "" if unknown.
func (n *Names) Port(number uint32) string { return n.ports[number] }

// MAC returns the owner of an Ethernet address, "" if unknown.
func (n *Names) MAC(mac string) string { return n.macs[mac] }

// setChain sets the names of a chain in nftables and in iptables. A name that two
// objects share stands for either.
func (n *Names) setChain(long, short, what string) {
	for _, name := range []string{long, iptables.KernelName(short)} {
		if other := n.chains[name]; other != "" && other != what {
			n.chains[name] = other + ", or " + what
		} else {
			n.chains[name] = what
		}
	}
}

func (n *Names) setSet(name, what string) {
	n.sets[name] = what
	n.sets[ipsets.KernelName(name)] = what
}

// setPart notes the names of the sets of a part of the common chain.
func (n *Names) setPart(long, short rules.Part, what string) {
	for _, f := range model.Families() {
		n.sets[rules.PartSet(long.Set, f)] = what
		n.sets[ipsets.KernelName(rules.PartSet(short.Set, f))] = what
	}
}

// static names the objects of every node.
func (n *Names) static() {
	for name, what := range map[string]string{
		rules.ChainForward: "where packets come in", rules.ChainPrerouting: "around the switch",
		rules.ChainEgress: "from a pod or the tunnel", rules.ChainOutside: "from outside to a pod", rules.ChainToPods: "to a pod of this node",
		rules.ChainCommonIn: "ingress policies of many pods", rules.ChainCommonOut: "egress policies of many pods",
		rules.ChainGrantedIn: "ingress grants of policies", rules.ChainGrantedOut: "egress grants of policies",
		rules.ChainAllowedOut: "allowed by egress policy", rules.ChainFromOutside: "from outside to a pod",
		rules.ChainSources: "source addresses of packets from pods", rules.ChainAllowed: "marks allowed connections",
		rules.ChainDeniedIn: "denied by ingress policy", rules.ChainDeniedOut: "denied by egress policy",
		rules.ChainRejectedIn: "rejected by ingress policy", rules.ChainRejectedOut: "rejected by egress policy",
		rules.ChainAnswer:    "answers to rejected packets",
		rules.ChainNoService: "packets to no Service",
		rules.ChainPassed:    "past the rules of other programs", rules.ChainFromSwitch: "packets of pods to Services",
		rules.ChainRewritten: "sources that other programs rewrote", rules.ChainGuardForward: "guard while policy is loaded",
		rules.ChainGuardPrerouting: "guard while policy is loaded", rules.ChainGuardInput: "guard while policy is loaded",
		rules.ChainEgressDrops: "packets to the outside without the address of their Egress", rules.ChainEgressSources: "addresses of Egresses",
		rules.ChainEgressGuard:  "packets with an address that another node may hold, or of a pod",
		rules.ChainUntranslated: "packets to the outside that still have a pod's address",
		rules.ChainInput:        "to this node", rules.ChainOwnNode: "from a pod to its own node",
		rules.ChainHostsInput: "policies of this node itself", rules.ChainHostsOutput: "policies of this node itself",
		rules.ChainHostsIngress: "ingress policies of this node", rules.ChainHostsEgress: "egress policies of this node",
		rules.ChainHostsPrerouting: "policies of this node before DNAT", rules.ChainHostsPreDNAT: "policies of this node before DNAT",
		rules.ChainHostsPreDNATBaseline: "baseline tier of this node before DNAT", rules.ChainHostsDeniedPreDNAT: "denied before DNAT", rules.ChainHostsRejectedPreDNAT: "rejected before DNAT",
		rules.ChainHostsIngressBaseline: "baseline tier of this node", rules.ChainHostsEgressBaseline: "baseline tier of this node",
		rules.ChainHostsDeniedIn: "denied by ingress policy of this node", rules.ChainHostsDeniedOut: "denied by egress policy of this node",
		rules.ChainHostsRejectedIn: "rejected by ingress policy of this node", rules.ChainHostsRejectedOut: "rejected by egress policy of this node",
	} {
		n.setChain(name, name, what)
	}
	for _, f := range model.Families() {
		n.setSet(rules.PodNetworksSet(f), "pod networks of the cluster")
		n.setSet(rules.ClusterSet(f).Name, "pod networks and nodes of the cluster")
		n.setSet(rules.EgressDroppedSet(f).Name, "pods whose packets may not leave the cluster from this node")
		n.setSet(rules.HairpinSet(f), "pods of this node, to themselves")
		n.setSet(rules.EgressSet(f), "pods of this node with egress policy")
		n.setSet(rules.OwnPodsSet(f).Name, "pods of this node")
		n.setSet(rules.OwnNodeSet(f), "pods of this node that ordered tiers judge on the way to it")
		n.setSet(rules.DispatchMap(model.Egress, f), "policies by the source")
		n.setSet(rules.DispatchMap(model.Ingress, f), "policies by the destination")
	}
	n.setSet(rules.GrantsSet, "grants of policies, by port")
	n.setSet(rules.AnyPortGrantsSet, "grants of policies for every port")
	for _, f := range model.Families() {
		n.setSet(rules.ListMap(model.Egress, f), "lists of policies by the source")
		n.setSet(rules.ListMap(model.Ingress, f), "lists of policies by the destination")
		n.setSet(rules.IdentityMap(f), "identities of peers by their groups of pods")
		n.setSet(rules.NetworkMap(f), "identities of peers by their networks")
	}
	for name, what := range rules.ServiceChains() {
		n.setChain(name, name, what)
	}
	for _, f := range model.Families() {
		for set, what := range map[rules.ServiceSet]string{
			rules.ServiceEndpoints: "endpoints of Services, by address, protocol, port and number", rules.ServiceRefused: "Services without endpoints", rules.ServiceClusterIPs: "cluster IPs of Services",
			rules.ServiceRestricted: "Services with source ranges", rules.ServiceSources: "their source ranges",
			rules.ServiceOwnPods: "pod networks of this node", rules.ServiceNodePorts: "addresses that serve node ports", rules.ServiceLocal: "endpoints of Services on this node",
		} {
			n.setSet(set.Of(f), what)
		}
	}
	n.ports[ovsdb.GatewayOFPort], n.ports[ovsdb.TunnelOFPort] = "gateway", "tunnel"
}

func (n *Names) policies(m *control.Model) {
	long := rules.NewRenderer(model.GatewayPort, rules.NFTablesNameLength)
	short := rules.NewRenderer(model.GatewayPort, rules.IPTablesNameLength)
	var all []policyflows.RuleID
	rule := map[policyflows.RuleID]string{}
	for _, p := range m.Policies {
		for _, d := range model.Directions() {
			n.setChain(long.PolicyChain(p.ID, d), short.PolicyChain(p.ID, d), fmt.Sprintf("%s %s", p.ID, d))
			n.setPart(long.PolicyPart(d, p.ID), short.PolicyPart(d, p.ID), fmt.Sprintf("pods under %s, %s", p.ID, d))
			for i, r := range p.Rules(d) {
				id := policyflows.RuleID{Policy: p.ID, Direction: d, Index: i}
				all, rule[id] = append(all, id), p.ID.String()+" "+r.Name
				if r.Title != "" {
					n.titles[rule[id]] = r.Title
				}
			}
		}
	}
	for id, r := range policyflows.IDs(all) {
		n.rules[id] = rule[r]
	}
	for _, e := range m.Endpoints {
		for _, d := range model.Directions() {
			applied := e.Applied(d)
			if applied.Empty() {
				continue
			}
			pods := fmt.Sprintf("pods under %s, %s", list(applied), d)
			n.setChain(long.AppliedChain(d, applied), short.AppliedChain(d, applied), pods)
			n.setPart(long.PodsPart(d, applied), short.PodsPart(d, applied), pods)
			if len(applied.Admin) > 0 {
				pods := fmt.Sprintf("pods under %s, %s", list(model.Applied{Admin: applied.Admin}), d)
				of, shortOf := long.AdminPart(d, applied.Admin), short.AdminPart(d, applied.Admin)
				n.setChain(tables.Target(of.Action), tables.Target(shortOf.Action), pods)
				n.setPart(of, shortOf, pods)
			}
			if own := rules.OwnNode(applied); d == model.Egress && !own.Empty() {
				pods := fmt.Sprintf("pods under %s, to their own node", list(own))
				of, shortOf := long.OwnNodePart(own), short.OwnNodePart(own)
				n.setChain(tables.Target(of.Action), tables.Target(shortOf.Action), pods)
				n.setPart(of, shortOf, pods)
			}
		}
	}
}

// hosts names the chains and rules of the node's own policies.
func (n *Names) hosts(h *model.HostPolicies) {
	if h.Empty() {
		return
	}
	r := rules.NewRenderer(model.GatewayPort, rules.NFTablesNameLength).OfHosts()
	for _, p := range h.Policies {
		for _, d := range model.Directions() {
			n.chains[r.PolicyChain(p.ID, d)] = fmt.Sprintf("%s %s", p.ID, d)
			for _, rule := range p.Rules(d) {
				if rule.Title != "" {
					n.titles[p.ID.String()+" "+rule.Name] = rule.Title
				}
			}
		}
	}
}

// list names the policies of a list.
func list(a model.Applied) string {
	var all []string
	for _, ids := range [][]model.PolicyID{a.Admin, a.NetworkPolicies, a.Baseline} {
		for _, id := range ids {
			all = append(all, id.String())
		}
	}
	const most = 4
	if more := len(all) - most; more > 1 {
		all = append(all[:most], fmt.Sprintf("%d more", more))
	}
	return strings.Join(all, ", ")
}

func (n *Names) groups(m *control.Model) {
	for _, g := range m.Groups {
		for _, f := range model.Families() {
			n.setSet(ipsets.Name(g.ID, f), g.Description)
		}
	}
}

// places names addresses, prefixes and ports.
func (n *Names) places(m *control.Model) {
	for _, node := range m.Nodes {
		for _, a := range node.Addresses {
			n.addresses[a] = "node " + node.Name
		}
		for _, p := range node.PodCIDRs {
			n.prefixes[p] = "pods of " + node.Name
			n.addresses[p.Addr().Next()] = "gateway of " + node.Name
		}
	}
	for _, a := range m.HostAddresses {
		if n.addresses[a] == "" {
			n.addresses[a] = "node " + m.Node
		}
	}
	for _, p := range m.Pods {
		for _, a := range p.Addresses {
			n.addresses[a] = p.ID.String()
		}
	}
	n.macs[ovsdb.GatewayMAC(m.Node).String()] = "gateway of " + m.Node
	for _, a := range m.Attachments {
		n.ports[a.OFPort], n.macs[a.MAC] = a.Pod.String(), a.Pod.String()
		for _, addr := range a.Addresses {
			n.addresses[addr] = a.Pod.String()
		}
	}
}
