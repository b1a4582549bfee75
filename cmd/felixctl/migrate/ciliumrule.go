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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/felixlike/felixlike/felixlike/antrea"
	"github.com/felixlike/felixlike/felixlike/datastore/strict"
	"github.com/felixlike/felixlike/model"
)

// rule converts a rule of Cilium.
func (r *ciliumRules) rule(raw json.RawMessage, egress, deny bool) (rule, error) {
	var in ciliumPeers
	var faults []strict.Fault
	if egress {
		var e ciliumEgress
		faults = strict.Decode(raw, &e)
		in = e.peers()
	} else {
		var i ciliumIngress
		faults = strict.Decode(raw, &i)
		in = i.peers()
	}
	if len(faults) > 0 {
		return rule{}, errors.New(strings.TrimSpace(faults[0].Field + " " + reasonOf(faults[0])))
	}
	var out rule
	var err error
	if out.ports, err = ciliumPortsOf(in.Ports); err != nil {
		return rule{}, err
	}
	for i, list := range in.Ports {
		if list.Rules != nil && (deny || !egress || !list.allNames()) {
			return rule{}, fmt.Errorf("toPorts[%d].rules has no counterpart, except dns with matchPattern \"*\" in egress", i)
		}
		out.onlyDNS = out.onlyDNS || list.Rules != nil
	}
	if out.icmp, err = ciliumMessages(in.ICMPs, len(in.Ports) > 0); err != nil {
		return rule{}, err
	}
	kinds := 0
	for _, set := range []bool{in.Endpoints != nil, in.CIDRs != nil, in.CIDRSets != nil, in.Entities != nil} {
		if set {
			kinds++
		}
	}
	switch {
	case kinds > 1:
		return rule{}, errors.New("peers of more than one kind in one rule have no counterpart: write a rule for each")
	case kinds == 0:
		// A rule without any peer matches nothing, and one with ports alone matches all peers.
		out.any = len(in.Ports)+len(out.icmp) > 0
		return out, nil
	case deny && in.selectNothing():
		return rule{}, errors.New("an empty list of peers has no counterpart: in some versions of Cilium it matches all")
	}
	if err := r.peers(&out, in, egress, deny); err != nil {
		return rule{}, err
	}
	return out, nil
}

// peers adds the peers of a rule. All are of one kind.
func (r *ciliumRules) peers(out *rule, in ciliumPeers, egress, deny bool) error {
	switch {
	case in.Endpoints != nil:
		for _, s := range *in.Endpoints {
			found, err := r.scope.selection(s, true)
			if err != nil {
				return err
			}
			out.peers = append(out.peers, peer{pods: &found})
		}
	case in.CIDRs != nil:
		for i, cidr := range *in.CIDRs {
			if err := r.outside(out, cidr, nil, deny); err != nil {
				return fmt.Errorf("%sCIDR[%d]: %w", towards(egress), i, err)
			}
		}
	case in.CIDRSets != nil:
		for i, set := range *in.CIDRSets {
			if err := r.outside(out, set.CIDR, set.Except, deny); err != nil {
				return fmt.Errorf("%sCIDRSet[%d]: %w", towards(egress), i, err)
			}
		}
	case in.Entities != nil && slices.Contains(*in.Entities, "all"):
		// Entities are alternatives: beside all, the others add nothing.
		out.any = true
	case in.Entities != nil:
		for _, entity := range *in.Entities {
			if err := r.entity(out, entity, egress, deny); err != nil {
				return err
			}
		}
	}
	return nil
}

// towards returns how the names of a direction's peer fields begin.
func towards(egress bool) string {
	if egress {
		return "to"
	}
	return "from"
}

// entity adds the peers of an entity: https://docs.cilium.io/en/stable/security/policy/language/#entities-based
func (r *ciliumRules) entity(out *rule, entity string, egress, deny bool) error {
	// Rules of NetworkPolicies never deny the own node, and no policy denies packets from it.
	ownNodeOpen := !egress || r.scope.namespace != ""
	nodes, pods := peer{nodes: true}, peer{pods: &selection{namespaces: &metav1.LabelSelector{}, pods: &metav1.LabelSelector{}}}
	switch {
	case entity == "world":
		return r.world(out, deny, "0.0.0.0/0", "::/0")
	case entity == "world-ipv4":
		return r.world(out, deny, "0.0.0.0/0")
	case entity == "world-ipv6":
		return r.world(out, deny, "::/0")
	case entity == "cluster":
		out.peers = append(out.peers, nodes, pods)
	case entity == "remote-node" && !deny && ownNodeOpen:
		out.peers = append(out.peers, nodes)
	case entity == "host" && !deny && ownNodeOpen:
		// The own node is reachable anyway.
	default:
		return fmt.Errorf("entity %s has no counterpart here", entity)
	}
	return nil
}

// world adds all addresses outside the cluster. In a cluster without pods of an IP version, a rule that allows needs no
// addresses of that version.
func (r *ciliumRules) world(out *rule, deny bool, all ...string) error {
	known := slices.DeleteFunc(slices.Clone(all), func(cidr string) bool { return !r.covers(netip.MustParsePrefix(cidr)) })
	if len(known) > 0 && !deny {
		all = known
	}
	for _, cidr := range all {
		if err := r.outside(out, cidr, nil, deny); err != nil {
			return err
		}
	}
	return nil
}

// covers reports whether --cluster-cidr has prefixes of the IP version of a prefix.
func (r *ciliumRules) covers(prefix netip.Prefix) bool {
	return slices.ContainsFunc(r.c.options.ClusterCIDRs, func(p netip.Prefix) bool { return p.Addr().Is4() == prefix.Addr().Is4() })
}

// outside adds a prefix without the addresses of the cluster. A rule that denies needs not know them all: then it denies more.
func (r *ciliumRules) outside(out *rule, cidr string, except []string, deny bool) error {
	of, err := prefixes([]string{cidr})
	if err != nil {
		return err
	}
	if !r.covers(of[0]) && (!deny || len(r.c.options.ClusterCIDRs) == 0) {
		return errors.New("it means addresses outside the cluster: --cluster-cidr with the prefixes of all pods and nodes is needed, of this IP version too")
	}
	r.c.note(noteOutside)
	not, err := prefixes(except)
	if err != nil {
		return err
	}
	if p := block(of[0], slices.Concat(not, r.c.options.ClusterCIDRs)); p != nil {
		out.peers = append(out.peers, *p)
	}
	return nil
}

// ciliumMessages converts the messages of ICMP of a rule: https://docs.cilium.io/en/stable/security/policy/language/#icmp-icmpv6
func ciliumMessages(all []ciliumICMP, hasPorts bool) ([]antrea.ICMP, error) {
	var out []antrea.ICMP
	for _, list := range all {
		if hasPorts {
			return nil, errors.New("icmps together with toPorts has no counterpart: Cilium refuses it")
		}
		if len(list.Fields) == 0 {
			return nil, errors.New("icmps without fields has no counterpart")
		}
		for _, f := range list.Fields {
			family, echo := model.IPv4, int32(8)
			switch f.Family {
			case "IPv6":
				family, echo = model.IPv6, 128
			case "", "IPv4":
			default:
				return nil, fmt.Errorf("family %q of icmps is not known", f.Family)
			}
			kind, err := strconv.ParseInt(f.Type.String(), 10, 32)
			if f.Type.String() == "EchoRequest" {
				kind, err = int64(echo), nil
			}
			if err != nil {
				return nil, fmt.Errorf("type %q of icmps has no counterpart: write its number", f.Type.String())
			}
			number := int32(kind)
			some, err := messages(family, &number, nil)
			if err != nil {
				return nil, fmt.Errorf("type %d of icmps: %w", number, err)
			}
			out = append(out, some...)
		}
	}
	return out, nil
}

// ciliumPortsOf converts the ports of a rule.
func ciliumPortsOf(all []ciliumPorts) ([]networkingv1.NetworkPolicyPort, error) {
	var out []networkingv1.NetworkPolicyPort
	for _, list := range all {
		if len(list.Ports) == 0 {
			return nil, errors.New("toPorts without ports has no counterpart")
		}
		for _, p := range list.Ports {
			protocols := []corev1.Protocol{corev1.Protocol(strings.ToUpper(p.Protocol))}
			switch protocols[0] {
			case "", "ANY":
				protocols = []corev1.Protocol{corev1.ProtocolTCP, corev1.ProtocolUDP, corev1.ProtocolSCTP}
			case corev1.ProtocolTCP, corev1.ProtocolUDP, corev1.ProtocolSCTP:
			default:
				return nil, fmt.Errorf("protocol %s has no counterpart", p.Protocol)
			}
			for _, protocol := range protocols {
				port, err := ciliumPort(protocol, p.Port, p.EndPort)
				if err != nil {
					return nil, err
				}
				out = append(out, port)
			}
		}
	}
	return out, nil
}

// ciliumPort converts a port: a number, a name, or 0 for all.
func ciliumPort(protocol corev1.Protocol, text string, end int32) (networkingv1.NetworkPolicyPort, error) {
	number, err := strconv.ParseUint(text, 10, 16)
	switch {
	case err == nil && len(text) > 1 && text[0] == '0':
		return networkingv1.NetworkPolicyPort{}, fmt.Errorf("port %q is an octal number for Cilium: write it without the 0", text)
	case text == "" || err == nil && number == 0 && end == 0:
		return protocolPort(protocol), nil
	case err == nil && number > 0 && end == 0:
		return portRange(protocol, int32(number), int32(number)), nil
	case err == nil && number > 0 && int64(number) <= int64(end) && end <= 65535:
		return portRange(protocol, int32(number), end), nil
	case err == nil || end != 0:
		return networkingv1.NetworkPolicyPort{}, fmt.Errorf("port %q to %d is no range of ports", text, end)
	}
	return namedPort(protocol, text), nil
}
