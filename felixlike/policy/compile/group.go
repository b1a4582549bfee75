package compile

import (
	"cmp"
	"crypto/sha256"
	"encoding/base64"
	"net/netip"
	"slices"
	"strings"

	"github.com/felixlike/felixlike/felixlike/policy/label"
	"github.com/felixlike/felixlike/model"
)

// PortName is a container port's name with its protocol.
type PortName struct {
	Protocol model.Protocol
	Name     string
}

// String returns the name as "tcp/web".
func (p PortName) String() string { return p.Protocol.String() + "/" + p.Name }

func (p PortName) compare(o PortName) int {
	return cmp.Or(cmp.Compare(p.Name, o.Name), cmp.Compare(p.Protocol, o.Protocol))
}

// Group defines a group of one of four kinds: the addresses of selected pods or of
// selected nodes (Addresses), the addresses of selected pods with a named port
// (AddressPorts), or the networks of a rule (Networks).
type Group struct {
	ID   model.GroupID
	Kind model.GroupKind
	// From selects the pods.
	From Selection
	// Nodes selects the nodes, and is nil for other groups.
	Nodes *label.Selector
	// Port is the port of AddressPorts.
	Port     PortName
	networks *networks
	// Cluster is zero for other groups than those of all nodes (Isolation).
	Cluster ClusterGroup
}

// networks is the text of all blocks of a rule, and the members that these make.
type networks struct {
	blocks  string
	members []model.Member
}

// GroupIDs makes the identifiers of groups. Its value is the number of hash characters in
// an identifier.
type GroupIDs int

// GroupIDHash is the number of hash characters, 138 bits. More would not fit the names of
// the kernel's ipset. An attacker finds two selectors with one identifier in 2^69 tries,
// so the engine compares the definitions of groups (see Collision).
const GroupIDHash GroupIDs = 23

// groupDescription bounds the length of a description in bytes.
const groupDescription = 200

func (n GroupIDs) id(letter byte, key string) model.GroupID {
	sum := sha256.Sum256([]byte(key))
	var text [1 + 43]byte
	base64.RawURLEncoding.Encode(text[1:], sum[:])
	text[0] = letter
	return model.GroupID(text[:1+n])
}

func (n GroupIDs) addressesOf(s Selection) Group {
	return Group{ID: n.id('a', s.key()), Kind: model.Addresses, From: s}
}

// nodesOf returns the group of nodes. No key of a selection begins with "nodes".
func (n GroupIDs) nodesOf(s *label.Selector) Group {
	return Group{ID: n.id('a', "nodes "+s.String()), Kind: model.Addresses, Nodes: s}
}

func (n GroupIDs) portsOf(s Selection, port PortName) Group {
	return Group{ID: n.id('p', port.String()+" "+s.key()), Kind: model.AddressPorts, From: s, Port: port}
}

func (n GroupIDs) networksOf(blocks []string, members []model.Member) Group {
	text := strings.Join(blocks, ", ")
	return Group{ID: n.id('n', text), Kind: model.Networks, networks: &networks{text, members}}
}

// prefixOf returns the group of one prefix.
func prefixOf(p netip.Prefix) Group {
	return Group{ID: model.PrefixGroup(p), Kind: model.Networks, networks: &networks{p.String(), []model.Member{{Prefix: p}}}}
}

// ofBlocks returns the groups with the addresses of all blocks: one, or none if exceptions
// leave no address. If the addresses of a family are one prefix, they are a group of their
// own.
func (n GroupIDs) ofBlocks(blocks []ipBlock) ([]Group, error) {
	members, err := blockMembers(blocks)
	if err != nil {
		return nil, err
	}
	var groups []Group
	var texts []string
	var rest []model.Member
	for _, f := range model.Families() {
		own := slices.DeleteFunc(slices.Clone(members), func(m model.Member) bool { return m.Family() != f })
		if len(own) == 1 {
			groups = append(groups, prefixOf(own[0].Prefix))
			continue
		}
		rest = append(rest, own...)
		for i := range blocks {
			if model.FamilyOf(blocks[i].cidr.Addr()) == f {
				texts = append(texts, blocks[i].text())
			}
		}
	}
	if len(rest) > 0 {
		slices.Sort(texts)
		groups = append(groups, n.networksOf(slices.Compact(texts), rest))
	}
	return groups, nil
}

// Members returns the members of a group of networks.
func (g *Group) Members() []model.Member { return g.networks.members }

// Describe describes the group for people.
func (g *Group) Describe() string {
	var text string
	switch {
	case g.Cluster != 0:
		text = g.Cluster.String()
	case g.Nodes != nil && g.Nodes.IsEverything():
		text = "all nodes"
	case g.Nodes != nil:
		text = "nodes " + g.Nodes.String()
	case g.Kind == model.Networks:
		text = g.networks.blocks
	case g.Kind == model.AddressPorts:
		text = "port " + g.Port.String() + " of " + g.From.String()
	default:
		text = g.From.String()
	}
	if len(text) > groupDescription {
		text = strings.ToValidUTF8(text[:groupDescription], "") + "..."
	}
	return text
}

// Same reports whether both definitions define the same group.
func (g *Group) Same(o *Group) bool {
	return g.Kind == o.Kind && g.Cluster == o.Cluster && g.Port == o.Port && g.From.Namespace == o.From.Namespace &&
		sameSelector(g.From.Namespaces, o.From.Namespaces) && sameSelector(g.From.Pods, o.From.Pods) && sameSelector(g.Nodes, o.Nodes) &&
		(g.networks == o.networks || g.networks != nil && o.networks != nil && g.networks.blocks == o.networks.blocks)
}

func sameSelector(a, b *label.Selector) bool {
	return a == b || a != nil && b != nil && a.String() == b.String()
}
