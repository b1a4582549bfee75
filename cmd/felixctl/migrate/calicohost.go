package migrate

import (
	"maps"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/felixlike/felixlike/felixlike/antrea"
	"github.com/felixlike/felixlike/felixlike/datastore/strict"
)

const (
	// createdBy is the label of host endpoints that Calico makes for each node, with the labels of the node.
	createdBy    = "projectcalico.org/created-by"
	nodeName     = "kubernetes.io/hostname"
	allowProfile = "projectcalico-default-allow"
)

// Notes about host endpoints.
const (
	noteHosts = "Policies for host endpoints become policies for nodes, which judge packets at all interfaces. They let packets pass from a node to its own pods, and to the node's failsafe ports."
	// looserNodes is about nodes that are selected by name.
	looserNodes = "Nodes are selected by their label kubernetes.io/hostname, with the names that the host endpoints have. A node whose label is another, and one that joins later, is not selected: change the selectors."
)

// calicoHost is a host endpoint for all interfaces of a node.
type calicoHost struct {
	node   string
	labels map[string]string
	at     int
	// open: packets that no policy is about pass, by the profile.
	open bool
}

// calicoHosts returns the host endpoints that have a counterpart, and all of them as sets of networks: selectors of rules select their addresses.
func (c *conversion) calicoHosts(documents []document) (hosts []calicoHost, sets []calicoSet) {
	c.hostsMade = true
	for i, d := range documents {
		if !isCalico(d.ref, "HostEndpoint") {
			continue
		}
		row := c.row(i)
		var spec struct {
			Node          string   `json:"node"`
			InterfaceName string   `json:"interfaceName"`
			ExpectedIPs   []string `json:"expectedIPs"`
			Profiles      []string `json:"profiles"`
			Ports         []any    `json:"ports"`
		}
		for _, fault := range strict.Decode(d.spec, &spec) {
			row.refuse(specField(fault.Field), "%s", reasonOf(fault))
		}
		labels := map[string]string{}
		maps.Copy(labels, d.labels)
		sets = append(sets, calicoSet{name: d.ref.Name, labels: labels, nets: spec.ExpectedIPs, host: true})
		if spec.Node == "" {
			row.refuse("spec.node", "required")
		}
		if spec.InterfaceName != "*" {
			row.refuse("spec.interfaceName", "it is for one interface, and policies for nodes judge all interfaces alike: with \"*\" it would be converted, and the other interfaces be judged too")
		}
		if len(spec.Ports) > 0 {
			row.refuse("spec.ports", "nodes have no named ports")
		}
		if slices.ContainsFunc(spec.Profiles, func(p string) bool { return p != allowProfile }) {
			row.refuse("spec.profiles", "only the profile %s has a counterpart: packets pass that no policy is about", allowProfile)
		}
		// Those that Calico makes by a template of an administrator have other names, and labels that nodes do not have.
		c.hostsMade = c.hostsMade && len(row.Losses) == 0 && labels[createdBy] != "" && d.ref.Name == spec.Node+"-auto-hep"
		if len(row.Losses) == 0 {
			hosts = append(hosts, calicoHost{node: spec.Node, labels: labels, at: i, open: len(spec.Profiles) > 0})
		}
	}
	if len(hosts) > 0 {
		c.note(noteHosts)
		c.loosen(looserFailsafe)
	}
	return hosts, sets
}

// byName returns the selector of nodes by their names.
func (c *conversion) byName(names ...string) *metav1.LabelSelector {
	c.loosen(looserNodes)
	slices.Sort(names)
	return &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: nodeName, Operator: metav1.LabelSelectorOpIn, Values: slices.Compact(names)}}}
}

// isGlobal reports whether a selector of namespaces is global(), which selects objects without a namespace.
func isGlobal(namespaces string) bool {
	return strings.Join(strings.Fields(namespaces), "") == "global()"
}

// nodesOf returns selectors of the nodes whose host endpoints a selector selects. If Calico has made all host endpoints of the input, and all are converted,
// they have the labels of their nodes: then the selectors also select nodes that join later.
func (c *conversion) nodesOf(hosts []calicoHost, selector, namespaces string) ([]*metav1.LabelSelector, error) {
	if len(hosts) == 0 || strings.TrimSpace(namespaces) != "" && !isGlobal(namespaces) {
		return nil, nil // a host endpoint is in no namespace
	}
	terms, err := termsOf(selector, "")
	if err != nil {
		return nil, err
	}
	var names []string
	for _, h := range hosts {
		if matches(terms, h.labels) {
			names = append(names, h.node)
		}
	}
	ofCalico := func(t term) bool {
		return slices.ContainsFunc(t, func(r metav1.LabelSelectorRequirement) bool { return strings.HasPrefix(r.Key, "projectcalico.org/") })
	}
	switch {
	case len(names) == 0:
		return nil, nil
	case !c.hostsMade || slices.ContainsFunc(terms, ofCalico):
		return []*metav1.LabelSelector{c.byName(names...)}, nil
	}
	var all []*metav1.LabelSelector
	for _, t := range terms {
		all = append(all, t.selector())
	}
	return all, nil
}

// ofNodes returns the policy for nodes that a policy of the tier default is, nil if it selects none.
func (c *conversion) ofNodes(p *calicoPolicy, of *converted) *converted {
	if len(p.nodes) == 0 {
		return nil
	}
	out := *of
	out.name, out.subjects, out.nodes, out.preDNAT = of.name+"-nodes", nil, p.nodes, p.preDNAT
	if p.preDNAT {
		// Calico denies nothing at the end of these.
		out.ingress.isolates, out.egress = false, direction{}
		c.row(p.at).loosen("spec.preDNAT", "packets to the address of a pod, which are not translated, are not judged before DNAT: write a policy for these pods")
	}
	return &out
}

// isolateHosts denies what no policy is about to and from nodes whose host endpoints have no profile, as Calico does.
func (c *conversion) isolateHosts(hosts []calicoHost) {
	for _, h := range hosts {
		if h.open {
			continue
		}
		drop := []antrea.Rule{{Action: antrea.Drop}}
		out := converted{at: h.at, origin: c.row(h.at).Object, name: "calico-" + c.row(h.at).Object.Name + "-host", nodes: []*metav1.LabelSelector{c.byName(h.node)}}
		c.emit(h.at, []metav1.Object{out.antrea("", antrea.PolicySpec{Tier: "baseline", Priority: lastPriority, AppliedTo: out.appliedTo(), Ingress: drop, Egress: drop})})
	}
}

// refuseHostFields reports the fields of a policy for host endpoints that have no counterpart.
func refuseHostFields(row *Object, spec *calicoSpec, global bool) {
	const ofHosts = "it is for host endpoints, "
	if spec.DoNotTrack {
		row.refuse("spec.doNotTrack", ofHosts+"and packets without a connection have no counterpart: no answer could pass")
	}
	switch {
	case spec.PreDNAT && !global:
		row.refuse("spec.preDNAT", "not allowed in a NetworkPolicy")
	case spec.PreDNAT && len(spec.Egress) > 0:
		row.refuse("spec.egress", "not allowed with preDNAT")
	case spec.ApplyOnForward && !spec.PreDNAT:
		row.refuse("spec.applyOnForward", ofHosts+"and packets that a node forwards are not judged: with preDNAT they would be")
	}
}

// refuseTier names a policy of another tier than default that selects nodes.
func (c *conversion) refuseTier(p *calicoPolicy) {
	if p.tier != nil && len(p.nodes) > 0 {
		c.row(p.at).loosen("spec.tier", "host endpoints in tier %q have no counterpart; for nodes, the policy is not converted", p.tier.name)
		p.nodes = nil
	}
}
