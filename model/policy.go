package model

import (
	"bytes"
	"cmp"
	"fmt"
	"iter"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"go4.org/netipx"
)

// PodID names a pod: its namespace and name.
type PodID struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
}

// String returns "namespace/name".
func (id PodID) String() string { return id.Namespace + "/" + id.Name }

// Compare orders pods by namespace, then name.
func (id PodID) Compare(o PodID) int {
	return cmp.Or(cmp.Compare(id.Namespace, o.Namespace), cmp.Compare(id.Name, o.Name))
}

// Tier is the layer a policy belongs to. Tiers are evaluated in the order of their values; a packet that no
// tier decides is allowed.
type Tier uint8

const (
	// TierAdmin policies are ordered and may allow, deny or pass.
	TierAdmin Tier = iota + 1
	// TierNetworkPolicy holds networking.k8s.io/v1 NetworkPolicy. One of them isolates an endpoint in a
	// direction; packets that none of its policies allows are then denied.
	TierNetworkPolicy
	// TierBaseline policies are ordered and judge only endpoints that no
	// NetworkPolicy isolates.
	TierBaseline
)

// String returns the tier's name.
func (t Tier) String() string {
	switch t {
	case TierAdmin:
		return "admin"
	case TierNetworkPolicy:
		return "networkpolicy"
	case TierBaseline:
		return "baseline"
	}
	return fmt.Sprintf("tier(%d)", uint8(t))
}

// Action is the effect of a rule on a packet that it matches.
type Action uint8

const (
	// Allow lets the packet through: no later rule of this direction is evaluated.
	Allow Action = iota + 1
	// Deny drops the packet.
	Deny
	// Pass hands the packet to the next tier.
	Pass
	// Reject is Deny with an answer to the sender: a TCP reset, or the ICMP error
	// "administratively prohibited". Only the answer differs.
	Reject
)

// Denies reports whether the action keeps the packet from its destination.
func (a Action) Denies() bool { return a == Deny || a == Reject }

// String returns the action's name.
func (a Action) String() string {
	switch a {
	case Allow:
		return "allow"
	case Deny:
		return "deny"
	case Pass:
		return "pass"
	case Reject:
		return "reject"
	}
	return fmt.Sprintf("action(%d)", uint8(a))
}

// Direction is the direction of traffic at an endpoint.
type Direction uint8

const (
	// Ingress is traffic to the endpoint; the peer is the source.
	Ingress Direction = iota + 1
	// Egress is traffic from the endpoint; the peer is the destination.
	Egress
)

// Directions lists both directions in rendering order.
func Directions() []Direction { return []Direction{Ingress, Egress} }

// String returns "ingress" or "egress".
func (d Direction) String() string {
	switch d {
	case Ingress:
		return "ingress"
	case Egress:
		return "egress"
	}
	return fmt.Sprintf("direction(%d)", uint8(d))
}

// PolicyAPI is the API that a policy is an object of.
type PolicyAPI uint8

const (
	// Kubernetes policies are NetworkPolicies, in the tier of that name, and
	// ClusterNetworkPolicies of policy.networking.k8s.io.
	Kubernetes PolicyAPI = iota
	// AntreaCluster policies are ClusterNetworkPolicies of crd.antrea.io.
	AntreaCluster
	// Antrea policies are NetworkPolicies of crd.antrea.io.
	Antrea
)

// PolicyID names a policy within its tier. Cluster-scoped policies have no
// namespace.
type PolicyID struct {
	Tier      Tier      `json:"tier"`
	API       PolicyAPI `json:"api,omitempty"`
	Namespace string    `json:"namespace,omitempty"`
	Name      string    `json:"name"`
	// Part numbers the parts of an object whose rules do not all apply to the same
	// pods, in the order of the rules. It is zero for a whole object.
	Part uint16 `json:"part,omitempty"`
	// Within is the namespace of the pods that the policy applies to, if the object has
	// a policy for each namespace: its rules mean other peers in each.
	Within string `json:"within,omitempty"`
}

// String returns "namespace/name" for a NetworkPolicy, "tier:name" for a
// ClusterNetworkPolicy, and "antrea:namespace/name" or "antrea-cluster:name" for
// those of Antrea's API, with "#2" for the second part and "@namespace" for the
// pods of a namespace.
func (id PolicyID) String() string {
	name := id.Name
	if id.Namespace != "" {
		name = id.Namespace + "/" + id.Name
	}
	if id.Part > 0 {
		name += "#" + strconv.Itoa(int(id.Part))
	}
	if id.Within != "" {
		name += "@" + id.Within
	}
	switch {
	case id.API == AntreaCluster:
		return "antrea-cluster:" + name
	case id.API == Antrea:
		return "antrea:" + name
	case id.Tier == TierNetworkPolicy:
		return name
	}
	return id.Tier.String() + ":" + name
}

// kind returns API group and kind of the object.
func (id PolicyID) kind() (group, kind string) {
	switch {
	case id.API == AntreaCluster:
		return "crd.antrea.io", "ClusterNetworkPolicy"
	case id.API == Antrea:
		return "crd.antrea.io", "NetworkPolicy"
	case id.Tier == TierNetworkPolicy:
		return "networking.k8s.io", "NetworkPolicy"
	}
	return "policy.networking.k8s.io", "ClusterNetworkPolicy"
}

// Object names the object of the policy. The kind has the API group if it is not one of
// Kubernetes.
func (id PolicyID) Object() ObjectRef {
	group, kind := id.kind()
	if id.API != Kubernetes {
		kind += "." + group
	}
	return ObjectRef{Kind: kind, Namespace: id.Namespace, Name: id.Name}
}

// Identity returns the unique identity of the policy: API group, kind, tier, namespace
// and name, for Antrea's also part and namespace of the pods, each followed by a zero
// byte, which occurs in none of them. A new kind in an existing tier needs an API of its
// own in PolicyID and here.
func (id PolicyID) Identity() string {
	group, kind := id.kind()
	identity := group + "\x00" + kind + "\x00" + id.Tier.String() + "\x00" + id.Namespace + "\x00" + id.Name + "\x00"
	if id.API != Kubernetes {
		identity += strconv.Itoa(int(id.Part)) + "\x00" + id.Within + "\x00"
	}
	return identity
}

// Compare orders policies by tier, API, namespace, name, part.
func (id PolicyID) Compare(o PolicyID) int {
	return cmp.Or(
		cmp.Compare(id.Tier, o.Tier), cmp.Compare(id.API, o.API),
		cmp.Compare(id.Namespace, o.Namespace), cmp.Compare(id.Name, o.Name),
		cmp.Compare(id.Part, o.Part), cmp.Compare(id.Within, o.Within),
	)
}

// Policy is a policy resolved to groups. Rules keep the order of the object.
type Policy struct {
	ID PolicyID `json:"id"`
	// Precedence orders the policies of the admin and the baseline tier.
	Precedence Precedence `json:"precedence,omitzero"`
	Ingress    []Rule     `json:"ingress,omitempty"`
	Egress     []Rule     `json:"egress,omitempty"`
}

// Precedence is the place of a policy among those of its tier: a lower Tier, then a
// lower priority, is evaluated first; of equal ones the order of identifiers decides. Tier
// is the priority of a tier of Antrea's API; ClusterNetworkPolicies of Kubernetes have
// the places TierOfAdmin and TierOfBaseline. It is zero for NetworkPolicies.
type Precedence struct {
	Tier     uint16  `json:"tier"`
	Priority float64 `json:"priority"`
}

// Compare orders by tier, then priority.
func (p Precedence) Compare(o Precedence) int {
	return cmp.Or(cmp.Compare(p.Tier, o.Tier), cmp.Compare(p.Priority, o.Priority))
}

// The places of ClusterNetworkPolicies of Kubernetes among the tiers of Antrea's API: behind
// the last ordinary one, 250, and behind the baseline, 253.
const (
	TierOfAdmin    = 251
	TierOfBaseline = 254
)

// Rules returns the rules of one direction.
func (p *Policy) Rules(d Direction) []Rule {
	if d == Ingress {
		return p.Ingress
	}
	return p.Egress
}

// Rule matches a packet when its peer dimension and its port dimension both
// match.
//
// Peers: AnyPeer matches every address; otherwise the peer's address must be
// in one of the Peers (groups of kind Addresses or Networks).
//
// Ports: AnyPort matches every protocol, ICMP included; otherwise protocol
// and destination port (of ICMP type and code, see PortRange) must be in one of
// the Ports, or destination address, protocol and port in one of the NamedPorts
// (groups of kind AddressPorts).
//
// A dimension that is neither "any" nor has members matches nothing.
type Rule struct {
	// Name is the place of the rule in its object, as in "ingress[0]". It identifies the rule.
	Name string `json:"name"`
	// Title is the name that the author gave the rule, as RuleTitle returns it. Only people read it.
	Title      string      `json:"title,omitempty"`
	Action     Action      `json:"action"`
	AnyPeer    bool        `json:"anyPeer,omitempty"`
	Peers      []GroupID   `json:"peers,omitempty"`
	AnyPort    bool        `json:"anyPort,omitempty"`
	Ports      []PortRange `json:"ports,omitempty"`
	NamedPorts []GroupID   `json:"namedPorts,omitempty"`
	// Log reports the first packet of each connection that the rule decides. LogLabel comes
	// with the report. Neither changes a verdict.
	Log      bool   `json:"log,omitempty"`
	LogLabel string `json:"logLabel,omitempty"`
}

// maxTitle bounds a title in bytes.
const maxTitle = 100

// RuleTitle returns the name that an author gave a rule, as a terminal can show it: printable and
// on one line.
func RuleTitle(name string) string {
	printable := strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return '?'
		}
		return r
	}, name)
	if len(printable) > maxTitle {
		printable = strings.ToValidUTF8(printable[:maxTitle-3], "") + "..."
	}
	return printable
}

// TitledRule returns the name of a rule with its title, as in "ingress[0] (no-metadata)".
func TitledRule(name, title string) string {
	if title == "" {
		return name
	}
	return name + " (" + title + ")"
}

// Logs reports whether one of the policy's rules has Log.
func (p *Policy) Logs() bool {
	logs := func(r Rule) bool { return r.Log }
	return slices.ContainsFunc(p.Ingress, logs) || slices.ContainsFunc(p.Egress, logs)
}

// PortRange is an inclusive range of destination ports of one protocol.
// First 0 and Last 65535 stand for the whole protocol.
//
// ICMP and ICMPv6 have no ports. In their place stands the type of the message times 256, plus
// its code (ICMPMessage). A range of them is the whole protocol, or all codes of one type, or
// one code of one type (ICMPRange).
type PortRange struct {
	Protocol Protocol `json:"protocol"`
	First    uint16   `json:"first"`
	Last     uint16   `json:"last"`
}

// AllPorts reports whether the range covers its whole protocol.
func (r PortRange) AllPorts() bool { return r.First == 0 && r.Last == 65535 }

// String returns "tcp", "tcp/80", "tcp/80-90", or of ICMP "icmp type 8", "icmp type 8 code 0".
func (r PortRange) String() string {
	if kind, code, anyCode, ok := r.ICMPRange(); ok {
		if anyCode {
			return fmt.Sprintf("%s type %d", r.Protocol, kind)
		}
		return fmt.Sprintf("%s type %d code %d", r.Protocol, kind, code)
	}
	switch {
	case r.AllPorts():
		return r.Protocol.String()
	case r.First == r.Last:
		return fmt.Sprintf("%s/%d", r.Protocol, r.First)
	}
	return fmt.Sprintf("%s/%d-%d", r.Protocol, r.First, r.Last)
}

// GroupID names a group. It is deterministic (equal selectors give equal
// identifiers on every node and after every restart), at most 24 characters
// out of [a-zA-Z0-9_-], and begins with the letter of its kind: a, p, or for
// Networks n, and c for one prefix (PrefixGroup).
type GroupID string

// Kind returns the kind of the group, which the first letter of its identifier shows; zero if unknown.
func (id GroupID) Kind() GroupKind {
	switch {
	case strings.HasPrefix(string(id), "a"):
		return Addresses
	case strings.HasPrefix(string(id), "n"), strings.HasPrefix(string(id), string(prefixLetter)):
		return Networks
	case strings.HasPrefix(string(id), "p"):
		return AddressPorts
	}
	return 0
}

// GroupKind is the kind of a group's members.
type GroupKind uint8

const (
	// Addresses are the single addresses of the pods that a selector matches.
	Addresses GroupKind = iota + 1
	// Networks are the prefixes of ipBlocks and of their exceptions. The longest prefix
	// that contains an address decides whether the group has the address (Member.Except).
	Networks
	// AddressPorts are (address, protocol, port) triples: named ports as the
	// matched pods declare them.
	AddressPorts
	// Loops are single addresses, each looked up as source and destination of one packet. No policy has such
	// a group: they match a pod that reaches itself through a Service.
	Loops
	// Senders are prefixes, each with the MAC address that packets from there have. No policy has such a group.
	Senders
)

// String returns the kind's name.
func (k GroupKind) String() string {
	switch k {
	case Addresses:
		return "addresses"
	case Networks:
		return "networks"
	case AddressPorts:
		return "address-ports"
	case Loops:
		return "loops"
	case Senders:
		return "senders"
	}
	return fmt.Sprintf("kind(%d)", uint8(k))
}

// Member is one member of a group. Prefix is always masked; it is a single
// address (/32 or /128) unless the kind is Networks or Senders. Protocol and Port are
// zero unless the kind is AddressPorts.
type Member struct {
	Prefix   netip.Prefix `json:"prefix"`
	Protocol Protocol     `json:"protocol,omitzero"`
	Port     uint16       `json:"port,omitempty"`
	// Except takes the prefix out of a group of Networks, except for longer
	// prefixes within it.
	Except bool `json:"except,omitempty"`
	// Last makes the member the range from the address of Prefix, which is a single
	// one, to Last. Only interval sets of nftables have such members.
	Last netip.Addr `json:"last,omitzero"`
	// MAC is zero unless the kind is Senders.
	MAC MAC `json:"mac,omitzero"`
}

// RangeMember returns the member for a range of addresses: a prefix if it is one.
func RangeMember(r netipx.IPRange) Member {
	if p, ok := r.Prefix(); ok {
		return Member{Prefix: p}
	}
	m := AddressMember(r.From())
	m.Last = r.To()
	return m
}

// Range returns the addresses of the member.
func (m Member) Range() netipx.IPRange {
	if m.Last.IsValid() {
		return netipx.IPRangeFrom(m.Prefix.Addr(), m.Last)
	}
	return netipx.RangeOfPrefix(m.Prefix)
}

// AddressMember returns the member for a single address.
func AddressMember(a netip.Addr) Member {
	a = a.Unmap()
	return Member{Prefix: netip.PrefixFrom(a, a.BitLen())}
}

// Family returns the family of the member's prefix.
func (m Member) Family() Family { return FamilyOf(m.Prefix.Addr()) }

// Compare orders members by address, prefix length, protocol, port, then exceptions
// behind others, and then by the end of the range and the MAC address.
func (m Member) Compare(o Member) int {
	if c := m.Prefix.Addr().Compare(o.Prefix.Addr()); c != 0 {
		return c
	}
	if c := m.Prefix.Bits() - o.Prefix.Bits(); c != 0 {
		return c
	}
	if c := int(m.Protocol) - int(o.Protocol); c != 0 {
		return c
	}
	if c := int(m.Port) - int(o.Port); c != 0 {
		return c
	}
	if m.Except != o.Except {
		if m.Except {
			return 1
		}
		return -1
	}
	if c := m.Last.Compare(o.Last); c != 0 {
		return c
	}
	return bytes.Compare(m.MAC[:], o.MAC[:])
}

// String returns the address, the prefix, the range "first-last" or
// "address,proto/port"; "nomatch" follows an exception, as ipset says it.
func (m Member) String() string {
	s := m.Prefix.String()
	if m.Prefix.IsSingleIP() {
		s = m.Prefix.Addr().String()
	}
	if m.Protocol != AnyProtocol {
		s += fmt.Sprintf(",%s/%d", m.Protocol, m.Port)
	}
	if m.Last.IsValid() {
		s += "-" + m.Last.String()
	}
	if m.MAC != (MAC{}) {
		s += " by " + m.MAC.String()
	}
	if m.Except {
		s += " nomatch"
	}
	return s
}

// Group is a set of members with the selector it stands for.
type Group struct {
	ID   GroupID   `json:"id"`
	Kind GroupKind `json:"kind"`
	// Description is the selector in words, for people.
	Description string `json:"description"`
}

// Endpoint is a pod of this node as policy sees it: which policies apply.
// The interface it is attached by is an Attachment.
type Endpoint struct {
	ID      PodID   `json:"id"`
	Ingress Applied `json:"ingress"`
	Egress  Applied `json:"egress"`
}

// Applied returns the policies of one direction.
func (e *Endpoint) Applied(d Direction) Applied {
	if d == Ingress {
		return e.Ingress
	}
	return e.Egress
}

// Applied lists the policies that apply to an endpoint in one direction, tier
// by tier. Admin and Baseline are in order of evaluation, which is that of the
// policies' Precedence, then of their identifiers; NetworkPolicies are sorted by
// identifier and isolate the endpoint when there is at least one, whether or not
// it has rules.
type Applied struct {
	Admin           []PolicyID `json:"admin,omitempty"`
	NetworkPolicies []PolicyID `json:"networkPolicies,omitempty"`
	Baseline        []PolicyID `json:"baseline,omitempty"`
}

// Isolated reports whether a NetworkPolicy isolates the direction.
func (a Applied) Isolated() bool { return len(a.NetworkPolicies) > 0 }

// Empty reports whether no policy of any tier applies.
func (a Applied) Empty() bool {
	return len(a.Admin) == 0 && len(a.NetworkPolicies) == 0 && len(a.Baseline) == 0
}

// All yields every policy, tier by tier.
func (a Applied) All() iter.Seq[PolicyID] {
	return func(yield func(PolicyID) bool) {
		for _, ids := range [...][]PolicyID{a.Admin, a.NetworkPolicies, a.Baseline} {
			for _, id := range ids {
				if !yield(id) {
					return
				}
			}
		}
	}
}

// Equal reports whether both list the same policies.
func (a Applied) Equal(o Applied) bool {
	return slices.Equal(a.Admin, o.Admin) && slices.Equal(a.NetworkPolicies, o.NetworkPolicies) && slices.Equal(a.Baseline, o.Baseline)
}
