package compile

import (
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/network-policy-api/apis/v1alpha2"

	"github.com/felixlike/felixlike/felixlike/policy/label"
	"github.com/felixlike/felixlike/model"
)

// maxPriority is the greatest priority of a ClusterNetworkPolicy.
const maxPriority = 1000

// clusterCompiler compiles one ClusterNetworkPolicy. It is a pure function of the object.
type clusterCompiler struct {
	tieredCompiler
	// deny is the action of the policy's Deny rules: model.Deny, or model.Reject.
	deny model.Action
}

// clusterRule is a rule of either direction: egress peers have all fields that ingress
// peers have.
type clusterRule struct {
	// name and title are those of model.Rule; peersField is "from" or "to".
	name, title, peersField string
	action                  v1alpha2.ClusterNetworkPolicyRuleAction
	peers                   []v1alpha2.ClusterNetworkPolicyEgressPeer
	protocols               []v1alpha2.ClusterNetworkPolicyProtocol
}

// ClusterNetworkPolicy compiles a ClusterNetworkPolicy. It reports each invalid part. An
// invalid rule, or every rule if tier, priority or subject are invalid, fails closed. Rules
// that fail closed drop.
func ClusterNetworkPolicy(object *v1alpha2.ClusterNetworkPolicy, ids GroupIDs) (*Policy, []model.Problem) {
	c := clusterCompiler{tieredCompiler: tieredCompiler{
		compiler: compiler{ids: ids, Report: Report{Object: model.ObjectRef{Kind: "ClusterNetworkPolicy", Name: object.Name}}}, allow: "Accept",
	}}
	c.deny = c.denyAction(object.Annotations)
	spec := &object.Spec
	out := &Policy{Model: model.Policy{ID: model.PolicyID{Tier: c.tier(spec.Tier), Name: object.Name}}}
	out.Model.Precedence = model.Precedence{Tier: model.TierOfAdmin, Priority: c.priority(spec.Priority)}
	if out.Model.ID.Tier == model.TierBaseline {
		out.Model.Precedence.Tier = model.TierOfBaseline
	}
	out.Targets = []Selection{c.subject(&spec.Subject)}
	c.targets = out.Targets
	var ingress, egress []clusterRule
	for i, r := range spec.Ingress {
		rule := clusterRule{indexed("ingress", i), model.RuleTitle(r.Name), "from", r.Action, nil, r.Protocols}
		for _, p := range r.From {
			rule.peers = append(rule.peers, v1alpha2.ClusterNetworkPolicyEgressPeer{Namespaces: p.Namespaces, Pods: p.Pods})
		}
		ingress = append(ingress, rule)
	}
	for i, r := range spec.Egress {
		egress = append(egress, clusterRule{indexed("egress", i), model.RuleTitle(r.Name), "to", r.Action, r.To, r.Protocols})
	}
	out.Model.Ingress = c.rules(model.Ingress, ingress)
	out.Model.Egress = c.rules(model.Egress, egress)
	c.closeCollided(&out.Model)
	c.logging(object.Annotations, &out.Model)
	c.noNodeAnnotations(object.Annotations)
	out.Staged = c.staged(object.Annotations)
	out.Ingress, out.Egress = len(out.Model.Ingress) > 0, len(out.Model.Egress) > 0
	out.Groups = c.used(&out.Model)
	return out, c.Problems
}

func (c *clusterCompiler) tier(t v1alpha2.Tier) model.Tier {
	switch t {
	case v1alpha2.AdminTier:
		return model.TierAdmin
	case v1alpha2.BaselineTier:
		return model.TierBaseline
	}
	c.close("spec.tier", "unsupported tier %q: must be Admin or Baseline", t)
	return model.TierAdmin
}

// priority returns the priority of the policy, 0 if it is not valid.
func (c *clusterCompiler) priority(p int32) float64 {
	if p < 0 || p > maxPriority {
		c.close("spec.priority", "%d is not between 0 and %d", p, maxPriority)
		return 0
	}
	return float64(p)
}

// subject compiles the selection of the pods that the policy applies to. If it is not
// valid, the policy applies to all pods.
func (c *clusterCompiler) subject(s *v1alpha2.ClusterNetworkPolicySubject) Selection {
	all := Selection{Namespaces: label.Everything(), Pods: label.Everything()}
	if (s.Namespaces == nil) == (s.Pods == nil) {
		c.close("spec.subject", "needs namespaces or pods, and not both; the policy then applies to all pods")
		return all
	}
	selection, ok := c.selected(s.Namespaces, s.Pods, "spec.subject")
	if !ok {
		c.close("spec.subject", "cannot be understood; the policy then applies to all pods")
		return all
	}
	return selection
}

// selected compiles a selection by namespaces, or by namespaces and pods.
func (c *clusterCompiler) selected(namespaces *metav1.LabelSelector, pods *v1alpha2.NamespacedPod, path string) (Selection, bool) {
	s := Selection{Pods: label.Everything()}
	if namespaces != nil {
		s.Namespaces = c.selector(namespaces, path+".namespaces", "")
		return s, s.Namespaces != nil
	}
	s.Namespaces = c.selector(&pods.NamespaceSelector, path+".pods.namespaceSelector", "")
	s.Pods = c.selector(&pods.PodSelector, path+".pods.podSelector", "")
	return s, s.Namespaces != nil && s.Pods != nil
}

// rules compiles the rules of a direction.
func (c *clusterCompiler) rules(d model.Direction, rules []clusterRule) []model.Rule {
	var out []model.Rule
	for i := range rules {
		out = append(out, c.compileRule(d, &rules[i])...)
	}
	if c.exceeds(d, out) {
		return closedRules(out)
	}
	return out
}

func (c *clusterCompiler) compileRule(d model.Direction, r *clusterRule) []model.Rule {
	path := "spec." + r.name
	action, known := c.actionOf(r.action)
	if !known {
		c.Add(path+".action", "unsupported action %q: must be Accept, Deny or Pass; the rule denies everything", r.action)
		return []model.Rule{denyAll(r.name)}
	}
	before := len(c.Problems)
	peers := c.clusterPeers(r.peers, path+"."+r.peersField)
	ports := c.clusterPorts(r.protocols, path+".protocols")
	if len(peers.networks) > 0 && len(ports.names) > 0 {
		c.Add(path+".protocols", "destinationNamedPort is not allowed with networks and nodes, which have no port names")
	}
	if len(c.Problems) > before {
		return c.replaced(before, r.name, action == model.Allow)
	}
	rule := model.Rule{Name: r.name, Title: r.title, Action: action}
	switch {
	case c.closed && action == model.Allow:
		return nil
	case c.closed:
		rule.Action = model.Deny
	}
	return c.directed(d, rule, peers, ports)
}

// denyAction returns the action that the annotation gives to Deny rules.
func (c *clusterCompiler) denyAction(annotations map[string]string) model.Action {
	switch action, set := annotations[model.DenyActionAnnotation]; {
	case !set || action == "drop":
	case action == "reject":
		return model.Reject
	default:
		c.Add(annotationField(model.DenyActionAnnotation), "unsupported action %q: must be drop or reject; Deny rules drop", action)
	}
	return model.Deny
}

func (c *clusterCompiler) actionOf(a v1alpha2.ClusterNetworkPolicyRuleAction) (model.Action, bool) {
	switch a {
	case v1alpha2.ClusterNetworkPolicyRuleActionAccept:
		return model.Allow, true
	case v1alpha2.ClusterNetworkPolicyRuleActionDeny:
		return c.deny, true
	case v1alpha2.ClusterNetworkPolicyRuleActionPass:
		return model.Pass, true
	}
	return model.Deny, false
}

// clusterPeers compiles the peers of a rule. It reports an invalid peer, which closes the
// rule.
func (c *clusterCompiler) clusterPeers(peers []v1alpha2.ClusterNetworkPolicyEgressPeer, path string) peerSet {
	out := peerBuilder{compiler: &c.compiler}
	if len(peers) == 0 {
		c.Add(path, "needs at least one peer")
	}
	for i, p := range peers {
		path := indexed(path, i)
		switch {
		case len(p.DomainNames) > 0:
			c.Add(path+".domainNames", "%q: not supported", p.DomainNames[0])
		case countTrue(p.Namespaces != nil, p.Pods != nil, p.Nodes != nil, len(p.Networks) > 0) != 1:
			c.Add(path, "needs exactly one of namespaces, pods, nodes and networks")
		case p.Nodes != nil:
			if nodes := c.selector(p.Nodes, path+".nodes", ""); nodes != nil {
				out.addNodes(nodes)
			}
		case len(p.Networks) > 0:
			for j, n := range p.Networks {
				cidr, err := ParseCIDR(string(n))
				if err != nil {
					c.Add(indexed(path+".networks", j), "%v", err)
					continue
				}
				out.blocks = append(out.blocks, ipBlock{cidr: cidr})
			}
		default:
			if s, ok := c.selected(p.Namespaces, p.Pods, path); ok {
				out.addPods(s)
			}
		}
	}
	return out.set(path)
}

// clusterPorts compiles the protocols of a rule. Without the field, the rule matches any
// port. It reports an empty list or an invalid protocol, which closes the rule. A named
// port matches in every protocol.
func (c *clusterCompiler) clusterPorts(protocols []v1alpha2.ClusterNetworkPolicyProtocol, path string) portSet {
	out := portSet{any: protocols == nil}
	if protocols != nil && len(protocols) == 0 {
		c.Add(path, "needs at least one protocol if it is there")
	}
	for i, p := range protocols {
		path := indexed(path, i)
		var set []model.PortRange
		var port *v1alpha2.Port
		if p.TCP != nil {
			set, port = append(set, model.PortRange{Protocol: model.TCP}), p.TCP.DestinationPort
		}
		if p.UDP != nil {
			set, port = append(set, model.PortRange{Protocol: model.UDP}), p.UDP.DestinationPort
		}
		if p.SCTP != nil {
			set, port = append(set, model.PortRange{Protocol: model.SCTP}), p.SCTP.DestinationPort
		}
		switch {
		case p.DestinationNamedPort != "" && len(set) == 0:
			if faults := validation.IsValidPortName(p.DestinationNamedPort); len(faults) > 0 {
				c.Add(path+".destinationNamedPort", "invalid port name %q: %s", p.DestinationNamedPort, strings.Join(faults, ", "))
				continue
			}
			for _, protocol := range []model.Protocol{model.TCP, model.UDP, model.SCTP} {
				out.names = append(out.names, PortName{protocol, p.DestinationNamedPort})
			}
		case len(set) != 1 || p.DestinationNamedPort != "":
			c.Add(path, "needs exactly one of tcp, udp, sctp and destinationNamedPort")
		default:
			r, ok := c.clusterPort(port, path+"."+set[0].Protocol.String()+".destinationPort")
			if ok {
				r.Protocol = set[0].Protocol
				out.ranges = append(out.ranges, r)
			}
		}
	}
	out.ranges = mergeRanges(out.ranges)
	slices.SortFunc(out.names, PortName.compare)
	out.names = slices.Compact(out.names)
	return out
}

// clusterPort compiles a port with a number or a range.
func (c *clusterCompiler) clusterPort(p *v1alpha2.Port, path string) (model.PortRange, bool) {
	switch {
	case p == nil || (p.Number == 0) == (p.Range == nil):
		c.Add(path, "needs a number or a range, and not both")
	case p.Range != nil && (p.Range.Start < 1 || p.Range.Start > p.Range.End || p.Range.End > MaxPort):
		c.Add(path+".range", "%d to %d is no range between 1 and 65535", p.Range.Start, p.Range.End)
	case p.Range != nil:
		return model.PortRange{First: uint16(p.Range.Start), Last: uint16(p.Range.End)}, true
	case p.Number < 1 || p.Number > MaxPort:
		c.Add(path+".number", "%d is not between 1 and 65535", p.Number)
	default:
		return model.PortRange{First: uint16(p.Number), Last: uint16(p.Number)}, true
	}
	return model.PortRange{}, false
}
