package preview

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/felixlike/felixlike/felixlike/antrea"
	"github.com/felixlike/felixlike/felixlike/control"
	"github.com/felixlike/felixlike/felixlike/policy/oracle"
	"github.com/felixlike/felixlike/model"
)

// KeptOpen is the verdict of packets that a change denies, and the failsafe ports let pass.
const KeptOpen = string(oracle.FailsafePort)

// SocketChange is a socket of the node that the change concerns: one that listens and is closed to Peers, or one with a connection that
// could not begin again.
type SocketChange struct {
	control.Socket
	Peers []string `json:"peers"`
	// Becomes is Denied or KeptOpen.
	Becomes string `json:"becomes"`
	Because string `json:"because"`
}

// hosts compares the decisions of policies for nodes before and after.
type hosts struct {
	*verdicts
	// clusters have the policies before and after, bare the same without failsafe ports.
	clusters, bare [2]*oracle.Cluster
	policies       []anyPolicy
	peers          []*end
}

// Nodes adds the packets to and from nodes themselves about which the policies of the node would decide otherwise, and the sockets of the
// model's node that this concerns.
func (p *Preview) Nodes(ctx context.Context, o control.Objects, c Change, m *control.Model, sockets func(context.Context) ([]control.Socket, error)) error {
	after, _, err := c.apply(o)
	if err != nil {
		return err
	}
	h := newHosts(o, policiesOf(o), after, m)
	for _, subject := range h.peers {
		if subject.node == nil || !h.hasPolicy(subject.node) {
			continue
		}
		for _, peer := range h.peers {
			if err := ctx.Err(); err != nil {
				return fmt.Errorf("judge packets of nodes: %w", context.Cause(ctx))
			}
			for _, d := range model.Directions() {
				p.OfNodes = append(p.OfNodes, h.eachFamily(func(f model.Family) []Difference { return h.decide(d, subject, peer, f) })...)
			}
		}
	}
	if slices.ContainsFunc(h.policies, anyPolicy.beforeDNAT) {
		p.Services, p.NoServices = h.services(c.Services), c.Services == nil && slices.ContainsFunc(p.Policies, PolicyChange.concernsServices)
	}
	at := slices.IndexFunc(o.Nodes, func(n *corev1.Node) bool { return n.Name == o.Node })
	if at < 0 || !h.hasPolicy(o.Nodes[at]) {
		return nil
	}
	all, err := sockets(ctx)
	if err != nil {
		return err
	}
	p.Sockets = h.sockets(o.Nodes[at], m, all)
	return nil
}

func newHosts(o control.Objects, before, after []anyPolicy, m *control.Model) *hosts {
	h := &hosts{verdicts: newVerdicts(o)}
	h.families = model.Families()
	if m.Failsafe != nil {
		h.failsafe = *m.Failsafe
	}
	for i, policies := range [2][]anyPolicy{before, after} {
		h.bare[i] = clusterOf(o, policies)
		h.clusters[i] = clusterOf(o, policies)
		h.clusters[i].Hosts = hostsOf(o, m)
	}
	for _, p := range slices.Concat(before, after) {
		if p.forNodes() {
			h.policies = append(h.policies, p)
		}
	}
	if len(h.policies) == 0 {
		return h
	}
	divides := blocks(h.policies, nil, h.failsafe.Nets()...)
	h.peers = classes(o.Pods, h.namespaces, h.policies, h.policies, divides)
	h.peers = append(h.peers, nodeClasses(o.Nodes, h.policies, divides)...)
	for _, f := range h.families {
		h.peers = append(h.peers, outside(f, divides, h.taken())...)
	}
	return h
}

// hostsOf returns what the objects do not say about nodes: all are taken to have the failsafe ports of the model's node.
func hostsOf(o control.Objects, m *control.Model) map[string]oracle.Host {
	all := map[string]oracle.Host{}
	for _, n := range o.Nodes {
		h := oracle.Host{}
		if m.Failsafe != nil {
			h.Failsafe = *m.Failsafe
		}
		if n.Name == m.Node {
			h.Addresses = m.HostAddresses
		}
		all[n.Name] = h
	}
	return all
}

// forNodes reports whether the policy is one for nodes.
func (p anyPolicy) forNodes() bool {
	_, is := p.antrea.(*antrea.ClusterNetworkPolicy)
	return is && slices.ContainsFunc(appliedTo(p.antrea), func(e antrea.AppliedTo) bool { return e.NodeSelector != nil })
}

// selectsNode reports whether the policy applies to a node itself.
func (p anyPolicy) selectsNode(n *corev1.Node) bool {
	object, is := p.antrea.(*antrea.ClusterNetworkPolicy)
	return is && slices.ContainsFunc(model.Directions(), func(d model.Direction) bool { return oracle.IsHostSubject(object, d, n) })
}

func (h *hosts) hasPolicy(n *corev1.Node) bool {
	return h.clusters[0].HasHostPolicy(n) || h.clusters[1].HasHostPolicy(n)
}

// nodeClasses groups nodes that no policy for nodes can distinguish.
func nodeClasses(all []*corev1.Node, policies []anyPolicy, blocks []netip.Prefix) (out []*end) {
	named := map[string]bool{}
	for _, p := range policies {
		selectors := appliedTo(p.antrea)
		for _, peer := range antreaPeers(p.antrea) {
			selectors = append(selectors, antrea.AppliedTo{NodeSelector: peer.NodeSelector})
		}
		for _, e := range selectors {
			if e.NodeSelector == nil {
				continue
			}
			for name := range e.NodeSelector.MatchLabels {
				named[name] = true
			}
			for _, one := range e.NodeSelector.MatchExpressions {
				named[one.Key] = true
			}
		}
	}
	byKey := map[string]*end{}
	for _, n := range all {
		var key []string
		for name, value := range n.Labels {
			if named[name] {
				key = append(key, name+"="+value)
			}
		}
		slices.Sort(key)
		for _, f := range model.Families() {
			a := nodeAddress(n, f)
			key = append(key, fmt.Sprint(a.IsValid()))
			for _, b := range blocks {
				key = append(key, fmt.Sprint(a.IsValid() && b.Contains(a)))
			}
		}
		k := strings.Join(key, "\n")
		if byKey[k] == nil {
			byKey[k] = &end{node: n}
			out = append(out, byKey[k])
		}
		byKey[k].alike = append(byKey[k].alike, n)
	}
	for i, e := range out {
		out[i] = nodeClass(e.alike)
	}
	return out
}

func nodeClass(alike []*corev1.Node) *end {
	e := &end{node: alike[0], alike: alike, text: "node " + alike[0].Name}
	if more := len(alike) - 1; more > 0 {
		e.text += fmt.Sprintf(" (+%d alike)", more)
	}
	return e
}

// without returns the end without a node, nil if nothing is left.
func (e *end) without(n *corev1.Node) *end {
	if !slices.Contains(e.alike, n) {
		return e
	}
	others := slices.DeleteFunc(slices.Clone(e.alike), func(o *corev1.Node) bool { return o == n })
	if len(others) == 0 {
		return nil // a node always reaches itself
	}
	return nodeClass(others)
}

// decide compares what the policies of a node decide about one family's packets with a peer.
func (h *hosts) decide(d model.Direction, subject, peer *end, f model.Family) []Difference {
	node := subject.node
	other := peer.without(node)
	if other == nil {
		return nil
	}
	own := nodeAddress(node, f)
	a, pod := other.representative(f, func(p *corev1.Pod) bool { return d == model.Ingress || p.Spec.NodeName != node.Name })
	if !own.IsValid() || !a.IsValid() {
		return nil
	}
	packet := oracle.Packet{Source: a, Destination: own}
	from, to, destination := peer, subject, (*corev1.Pod)(nil)
	if d == model.Egress {
		packet, from, to, destination = oracle.Packet{Source: own, Destination: a}, subject, peer, pod
	}
	var all verdictRanges
	apart := h.failsafe.Ranges()
	if d == model.Ingress {
		apart = append(apart, tooBig(f))
	}
	for _, r := range spans(h.policies, destination, f, apart...) {
		packet.Protocol, packet.Port = r.Protocol, r.First
		if becomes, then := h.compare(ofHost(d, node, packet)); becomes != "" {
			all.join(Difference{From: from.nodeNames(), To: to.nodeNames(), from: from, to: to, Families: []string{"IPv" + f.String()}, Becomes: becomes, Because: then}, r)
		}
	}
	return all.named()
}

// compare returns what a packet becomes, "" if its verdict stays, with the reason.
func (h *hosts) compare(decide func(*oracle.Cluster) oracle.Decision) (becomes, because string) {
	now, then := decide(h.clusters[0]), decide(h.clusters[1])
	switch {
	case now.Allowed && !then.Allowed:
		return Denied, decisionText(then)
	case !now.Allowed && then.Allowed:
		return Allowed, decisionText(then)
	case then.Why == oracle.FailsafePort:
		// The failsafe ports are asked before the policies: these deny it only without them.
		if now, then := decide(h.bare[0]), decide(h.bare[1]); now.Allowed && !then.Allowed {
			return KeptOpen, decisionText(then)
		}
	}
	return "", ""
}

// ofHost returns the decision about a packet of the node itself.
func ofHost(d model.Direction, node *corev1.Node, p oracle.Packet) func(*oracle.Cluster) oracle.Decision {
	return func(c *oracle.Cluster) oracle.Decision { return c.DecideHost(d, node, p) }
}

func decisionText(d oracle.Decision) string {
	switch d.Why {
	case oracle.RuleAllows:
		return fmt.Sprintf("%s %s allows it", d.Policy, model.TitledRule(d.Rule, d.Title))
	case oracle.RuleDenies:
		return fmt.Sprintf("%s %s denies it", d.Policy, model.TitledRule(d.Rule, d.Title))
	case oracle.NotAPod:
		return "no policy applies to the node"
	}
	return string(d.Why)
}

// nodeNames lists the members of an end of packets with a node at the other end.
func (e *end) nodeNames() []string {
	if e.node == nil {
		return e.names()
	}
	var names []string
	for _, n := range e.alike {
		names = append(names, "node "+n.Name)
	}
	return names
}

// sockets returns the sockets of the node that the change concerns.
func (h *hosts) sockets(node *corev1.Node, m *control.Model, all []control.Socket) (out []SocketChange) {
	own := func(a netip.Addr) bool { return a.IsLoopback() || slices.Contains(m.HostAddresses, a) }
	// The policies judge the endpoint, which the socket of the client does not have.
	ofService := func(a netip.Addr) bool {
		return slices.ContainsFunc(slices.Concat(m.Settings.ServiceCIDRs, m.ServiceCIDRs), func(p netip.Prefix) bool { return p.Contains(a) })
	}
	type at struct {
		model.Protocol
		port uint16
	}
	listens := map[at]bool{}
	for _, s := range all {
		if !s.Peer.IsValid() {
			listens[at{s.Protocol, s.Local.Port()}] = true
		}
	}
	for _, s := range all {
		var changes []SocketChange
		switch {
		case s.Local.Addr().IsLoopback() || s.Local.Addr().Zone() != "":
		case !s.Peer.IsValid():
			changes = h.closed(node, s)
		case !own(s.Peer.Addr()) && !ofService(s.Peer.Addr()):
			d, p := model.Egress, oracle.Packet{Source: s.Local.Addr(), Destination: s.Peer.Addr(), Protocol: s.Protocol, Port: s.Peer.Port()}
			if listens[at{s.Protocol, s.Local.Port()}] { // the peer began the connection
				d, p = model.Ingress, oracle.Packet{Source: s.Peer.Addr(), Destination: s.Local.Addr(), Protocol: s.Protocol, Port: s.Local.Port()}
			}
			if becomes, because := h.compare(ofHost(d, node, p)); becomes == Denied || becomes == KeptOpen {
				changes = []SocketChange{{s, []string{s.Peer.Addr().String()}, becomes, because}}
			}
		}
		out = append(out, changes...)
	}
	slices.SortStableFunc(out, func(a, b SocketChange) int { return cmp.Compare(a.Peer.Port(), b.Peer.Port()) }) // those that listen first
	return slices.CompactFunc(out, func(a, b SocketChange) bool {
		return a.Socket == b.Socket && a.Becomes == b.Becomes && a.Because == b.Because && slices.Equal(a.Peers, b.Peers)
	})
}

// closed returns to whom a socket that listens becomes closed.
func (h *hosts) closed(node *corev1.Node, s control.Socket) (out []SocketChange) {
	for _, peer := range h.peers {
		for _, f := range h.families {
			local := s.Local.Addr()
			if local.IsUnspecified() && (local.Is6() || f == model.IPv4) {
				local = nodeAddress(node, f)
			}
			who := peer.without(node)
			if who == nil {
				continue
			}
			a, _ := who.representative(f, func(*corev1.Pod) bool { return true })
			if !local.IsValid() || model.FamilyOf(local) != f || !a.IsValid() {
				continue
			}
			becomes, because := h.compare(ofHost(model.Ingress, node, oracle.Packet{Source: a, Destination: local, Protocol: s.Protocol, Port: s.Local.Port()}))
			if becomes != Denied && becomes != KeptOpen {
				continue
			}
			i := slices.IndexFunc(out, func(o SocketChange) bool { return o.Becomes == becomes && o.Because == because })
			if i < 0 {
				out, i = append(out, SocketChange{s, nil, becomes, because}), len(out)
			}
			if !slices.Contains(out[i].Peers, who.text) {
				out[i].Peers = append(out[i].Peers, who.text)
			}
		}
	}
	return out
}
