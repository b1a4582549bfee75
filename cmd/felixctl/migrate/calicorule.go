package migrate

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/felixlike/felixlike/felixlike/antrea"
	"github.com/felixlike/felixlike/felixlike/datastore/strict"
	"github.com/felixlike/felixlike/felixlike/policy/compile"
	"github.com/felixlike/felixlike/model"
)

// calicoRules converts the rules of one policy.
type calicoRules struct {
	c     *conversion
	row   *Object
	scope calicoScope
	sets  []calicoSet
	// tiered: the policy is of another tier than default.
	tiered bool
	// refused: a rule that denies cannot be converted, so the policy is not.
	refused bool
}

func (r *calicoRules) direction(all []json.RawMessage, name string) *calicoDirection {
	out := &calicoDirection{}
	for i, raw := range all {
		field := fmt.Sprintf("spec.%s[%d]", name, i)
		one, action, err := r.rule(raw, name == "egress")
		switch {
		case err == nil && action == "Log":
			r.row.lose(field, "action Log has no counterpart, and changes no verdict: felixlike logs what other rules decide (docs/use/logging.md)")
		case errors.Is(err, errBeginsNothing):
			r.row.lose(field, "%v", err)
		case err == nil:
			out.rules = append(out.rules, one)
			if action == "Pass" && !r.tiered && !one.empty() {
				r.row.loosen(field, "a Pass is converted to an Allow, because the profiles of namespaces allow everything. A tier behind the tier default is not asked: "+
					"policies of it, BaselineAdminNetworkPolicies and ClusterNetworkPolicies of the tier Baseline may deny these packets, and a host endpoint without a profile does")
			}
		case mayDeny(raw, r.tiered):
			effect := "denies"
			if action == "Pass" {
				effect = "keeps its packets from later rules of the tier"
			}
			r.row.refuse(field, "%v, and the rule %s", err, effect)
			r.refused = true
		case r.tiered:
			r.row.lose(field, "%v; the rule is left out: later rules and tiers decide on its packets", err)
		default:
			r.row.lose(field, "%v; the rule is left out: its packets are denied unless another rule allows them", err)
		}
	}
	out.rules = withoutEmpty(out.rules)
	return out
}

// mayDeny reports whether a rule of Calico does anything but allow. In another tier than default, a
// Pass keeps packets from later rules of the tier, which may allow what the next tier denies.
func mayDeny(raw json.RawMessage, tiered bool) bool {
	var head struct {
		Action string `json:"action"`
	}
	err := json.Unmarshal(raw, &head)
	return err != nil || head.Action != "Allow" && (head.Action != "Pass" || tiered)
}

// rule converts a rule, and returns its action in Calico. A rule with the action Log becomes none.
func (r *calicoRules) rule(raw json.RawMessage, egress bool) (out rule, action string, err error) {
	var in calicoRule
	if faults := strict.Decode(raw, &in); len(faults) > 0 {
		return rule{}, "", errors.New(strings.TrimSpace(faults[0].Field + " " + reasonOf(faults[0])))
	}
	out = rule{action: antrea.Allow}
	switch in.Action {
	case "Allow":
	case "Pass":
		if r.tiered {
			out.action = antrea.Pass
		}
	case "Deny":
		out.action = antrea.Drop
	case "Log":
		return rule{}, in.Action, nil
	default:
		return rule{}, "", fmt.Errorf("action %q is not known", in.Action)
	}
	if field := in.unsupported(egress); field != "" {
		return rule{}, in.Action, fmt.Errorf("%s has no counterpart", field)
	}
	peer := in.Source
	if egress {
		peer = in.Destination
	}
	if family, is := in.icmpFamily(); is {
		if out.icmp, err = in.messages(family); err != nil {
			return rule{}, in.Action, err
		}
	} else if out.ports, err = in.ports(); err != nil {
		return rule{}, in.Action, err
	}
	version := in.IPVersion
	if len(out.icmp) > 0 {
		version = 0 // the messages are of one version alone
	}
	if out.any, out.peers, err = r.peers(&peer, version); err != nil {
		return rule{}, in.Action, err
	}
	return out, in.Action, nil
}

// unsupported returns a field of the rule that is set and has no counterpart, or "".
func (r *calicoRule) unsupported(egress bool) string {
	subject, subjectName, peer, peerName := r.Destination, "destination", r.Source, "source"
	if egress {
		subject, subjectName, peer, peerName = r.Source, "source", r.Destination, "destination"
	}
	for _, f := range []struct {
		name string
		set  bool
	}{
		{"http", r.HTTP != nil},
		{"notICMP", r.NotICMP != nil},
		{"notProtocol", r.NotProtocol != nil},
		{"source.ports", len(r.Source.Ports) > 0},
		{"source.notPorts", len(r.Source.NotPorts) > 0},
		{subjectName + ".nets", len(subject.Nets) > 0},
		{subjectName + ".notNets", len(subject.NotNets) > 0},
		{subjectName + ".selector", subject.Selector != ""},
		{subjectName + ".notSelector", subject.NotSelector != ""},
		{subjectName + ".namespaceSelector", subject.NamespaceSelector != ""},
		{subjectName + ".services", subject.Services != nil},
		{subjectName + ".domains", len(subject.Domains) > 0},
		{subjectName + ".serviceAccounts", subject.ServiceAccounts != nil},
		{peerName + ".services", peer.Services != nil},
		{peerName + ".domains", len(peer.Domains) > 0},
		{peerName + ".serviceAccounts", peer.ServiceAccounts != nil},
	} {
		if f.set {
			return f.name
		}
	}
	return ""
}

// peers converts the peer of a rule.
func (r *calicoRules) peers(e *calicoEntity, version int) (everyone bool, peers []peer, err error) {
	// In a namespace, notSelector alone selects pods of the namespace: any field that selects limits the peers to it.
	selects := e.Selector != "" || e.NamespaceSelector != "" || e.NotSelector != "" && r.scope.namespace != ""
	blocks := len(e.Nets) > 0 || len(e.NotNets) > 0 || version != 0
	switch {
	case e.NotSelector != "" && !selects:
		return false, nil, errors.New("notSelector without a selector has no counterpart: it also matches addresses outside the cluster")
	case selects && blocks:
		return false, nil, errors.New("a selector together with nets, notNets or ipVersion has no counterpart")
	case blocks:
		peers, err = netPeers(e.Nets, e.NotNets, version)
		return false, peers, err
	case !selects:
		return true, nil, nil
	}
	r.c.note(noteSets)
	sets, err := r.scope.sets(r.sets, e.Selector, e.NotSelector, e.NamespaceSelector)
	if err != nil {
		return false, nil, err
	}
	for _, set := range sets {
		if len(set.nets) == 0 {
			continue
		}
		some, err := netPeers(set.nets, nil, 0)
		if err != nil {
			return false, nil, fmt.Errorf("set of networks %s: %w", set.name, err)
		}
		peers = append(peers, some...)
	}
	if strings.ReplaceAll(e.NamespaceSelector, " ", "") == "global()" {
		return false, peers, nil
	}
	selections, err := r.scope.selections(e.Selector, e.NotSelector, e.NamespaceSelector)
	for _, s := range selections {
		peers = append(peers, peer{pods: &s})
	}
	return false, peers, err
}

// netPeers returns the prefixes of one IP version, or of both for 0, without others. No prefix stands for all addresses. As in
// Calico, a rule with notNets is for IP versions alone of which notNets has a prefix (felix/rules/policy.go).
func netPeers(nets, not []string, version int) ([]peer, error) {
	if version != 0 && version != 4 && version != 6 {
		return nil, fmt.Errorf("ipVersion %d is not known", version)
	}
	if len(nets) == 0 {
		nets = []string{"0.0.0.0/0", "::/0"}
	}
	of, err := prefixes(nets)
	if err != nil {
		return nil, err
	}
	except, err := prefixes(not)
	if err != nil {
		return nil, err
	}
	var peers []peer
	for _, prefix := range of {
		sameVersion := func(p netip.Prefix) bool { return p.Addr().Is4() == prefix.Addr().Is4() }
		if version == 4 && !prefix.Addr().Is4() || version == 6 && prefix.Addr().Is4() || len(except) > 0 && !slices.ContainsFunc(except, sameVersion) {
			continue
		}
		if p := block(prefix, except); p != nil {
			peers = append(peers, *p)
		}
	}
	return peers, nil
}

// prefixes parses prefixes, and addresses as prefixes of one address.
func prefixes(texts []string) ([]netip.Prefix, error) {
	var all []netip.Prefix
	for _, text := range texts {
		if address, err := netip.ParseAddr(text); err == nil {
			text = netip.PrefixFrom(address, address.BitLen()).String()
		}
		prefix, err := compile.ParseCIDR(text)
		if err != nil {
			return nil, err
		}
		all = append(all, prefix)
	}
	return all, nil
}

// icmpFamily returns the IP version of a rule about ICMP.
func (r *calicoRule) icmpFamily() (family model.Family, is bool) {
	if r.Protocol == nil {
		return 0, false
	}
	switch strings.ToUpper(r.Protocol.String()) {
	case "ICMP", "1":
		return model.IPv4, true
	case "ICMPV6", "58":
		return model.IPv6, true
	}
	return 0, false
}

// messages converts the messages of a rule about ICMP.
func (r *calicoRule) messages(family model.Family) ([]antrea.ICMP, error) {
	if r.IPVersion != 0 && (r.IPVersion == 4) != (family == model.IPv4) {
		return nil, fmt.Errorf("protocol %s with ipVersion %d", r.Protocol, r.IPVersion)
	}
	if len(r.Destination.Ports)+len(r.Destination.NotPorts) > 0 {
		return nil, fmt.Errorf("ports with protocol %s", r.Protocol)
	}
	if r.ICMP == nil {
		return messages(family, nil, nil)
	}
	return messages(family, r.ICMP.Type, r.ICMP.Code)
}

// ports converts the protocol and the destination's ports.
func (r *calicoRule) ports() ([]networkingv1.NetworkPolicyPort, error) {
	if r.ICMP != nil {
		return nil, errors.New("icmp without the protocol ICMP or ICMPv6")
	}
	if r.Protocol == nil {
		if len(r.Destination.Ports)+len(r.Destination.NotPorts) > 0 {
			return nil, errors.New("ports without a protocol")
		}
		return nil, nil
	}
	protocol, known := map[string]corev1.Protocol{
		"TCP": corev1.ProtocolTCP, "6": corev1.ProtocolTCP, "UDP": corev1.ProtocolUDP, "17": corev1.ProtocolUDP, "SCTP": corev1.ProtocolSCTP, "132": corev1.ProtocolSCTP,
	}[strings.ToUpper(r.Protocol.String())]
	switch {
	case !known:
		return nil, fmt.Errorf("protocol %s has no counterpart", r.Protocol)
	case len(r.Destination.Ports) > 0 && len(r.Destination.NotPorts) > 0:
		return nil, errors.New("ports together with notPorts have no counterpart")
	case len(r.Destination.NotPorts) > 0:
		return portsBut(protocol, r.Destination.NotPorts)
	case len(r.Destination.Ports) == 0:
		return []networkingv1.NetworkPolicyPort{protocolPort(protocol)}, nil
	}
	var all []networkingv1.NetworkPolicyPort
	for _, p := range r.Destination.Ports {
		if p.String() == "0:65535" {
			all = append(all, protocolPort(protocol))
			continue
		}
		first, last, name, err := calicoPort(p)
		switch {
		case err != nil:
			return nil, err
		case name != "":
			all = append(all, namedPort(protocol, name))
		default:
			all = append(all, portRange(protocol, first, last))
		}
	}
	return all, nil
}

// calicoPort returns a port as a range, or its name.
func calicoPort(p intstr.IntOrString) (first, last int32, name string, err error) {
	text := p.String()
	low, high, isRange := strings.Cut(text, ":")
	from, errFrom := strconv.ParseUint(low, 10, 16)
	to := from
	var errTo error
	if isRange {
		to, errTo = strconv.ParseUint(high, 10, 16)
	}
	switch {
	case errFrom == nil && errTo == nil && from == 0:
		return 0, 0, "", fmt.Errorf("port 0 of %q has no counterpart", text)
	case errFrom == nil && errTo == nil && from <= to:
		return int32(from), int32(to), "", nil
	case isRange || p.Type == intstr.Int || errFrom == nil:
		return 0, 0, "", fmt.Errorf("%q is no port and no range of ports", text)
	}
	return 0, 0, text, nil
}

// portsBut returns all ports but some.
func portsBut(protocol corev1.Protocol, not []intstr.IntOrString) ([]networkingv1.NetworkPolicyPort, error) {
	type span struct{ first, last int32 }
	var spans []span
	for _, p := range not {
		first, last, name, err := calicoPort(p)
		if err != nil {
			return nil, err
		}
		if name != "" {
			return nil, fmt.Errorf("notPorts with the name %q has no counterpart", name)
		}
		spans = append(spans, span{first, last})
	}
	slices.SortFunc(spans, func(a, b span) int { return int(a.first - b.first) })
	var all []networkingv1.NetworkPolicyPort
	next := int32(1)
	for _, s := range spans {
		if s.first > next {
			all = append(all, portRange(protocol, next, s.first-1))
		}
		next = max(next, s.last+1)
	}
	if next <= 65535 {
		all = append(all, portRange(protocol, next, 65535))
	}
	if len(all) == 0 {
		return nil, errors.New("notPorts leaves no port")
	}
	return all, nil
}
