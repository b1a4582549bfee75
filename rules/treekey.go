package rules

import (
	"fmt"
	"net/netip"
	"strings"

	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/tables"
)

// AddressTree dispatches by an address of the packet, of one family. Its digits are the
// bits of the address. It replaces the verdict map of the same direction and family (see
// DispatchMap): the root's rules are where the map's lookup would be. A packet with an
// unknown address continues with the rule behind them.
type AddressTree struct {
	prefixTree
	direction model.Direction
	family    model.Family
}

// NewAddressTree returns an empty tree over the addresses of one family: over
// source addresses for Egress, over destination addresses for Ingress.
func NewAddressTree(names Names, d model.Direction, f model.Family) *AddressTree {
	return &AddressTree{newPrefixTree(addressSpace{names: names, direction: d, family: f}), d, f}
}

// Set sets the verdict for an address. It ignores an address of another family.
func (t *AddressTree) Set(a netip.Addr, verdict tables.Action) {
	if a.IsValid() && model.FamilyOf(a) == t.family {
		t.set(addressDigits(a), verdict)
	}
}

// Root returns the rules for the chain that dispatches. Packets that egress policy allows
// come back there, and return.
func (t *AddressTree) Root() []tables.Rule { return returnJudged(t.prefixTree.Root(), t.direction) }

func returnJudged(root []tables.Rule, d model.Direction) []tables.Rule {
	if d == model.Egress && len(root) > 0 {
		root = append(root, tables.Rule{Matches: []tables.Match{isJudged()}, Action: tables.Return{}, Comment: "may leave"})
	}
	return root
}

// Remove removes the address.
func (t *AddressTree) Remove(a netip.Addr) { t.remove(addressDigits(a)) }

// InterfaceTree dispatches by the name of the interface that a packet came in by or
// goes out by. Its digits are the name's bytes, so its chains are wider than those of
// an AddressTree. It is for nodes where the pods are not on our bridge. A packet of an unknown
// interface continues with the rule behind its root.
type InterfaceTree struct{ prefixTree }

// NewInterfaceTree returns an empty tree: over the interfaces that packets come
// in by for Egress, over those that they go out by for Ingress.
func NewInterfaceTree(names Names, d model.Direction) *InterfaceTree {
	return &InterfaceTree{newPrefixTree(interfaceSpace{names: names, direction: d})}
}

// Set sets the verdict for an interface. It returns an error for a name that no rule can
// match exactly.
func (t *InterfaceTree) Set(name string, verdict tables.Action) error {
	if name == "" || len(name) > maxInterfaceName || strings.ContainsAny(name, "/\x00") || strings.HasSuffix(name, wildcard) || strings.HasSuffix(name, "+") {
		return fmt.Errorf("interface %q: not a name that a rule can match", name)
	}
	t.set(name+endOfName, verdict)
	return nil
}

// Remove removes the interface.
func (t *InterfaceTree) Remove(name string) { t.remove(name + endOfName) }

const (
	// wildcard ends the name in a tables.MatchInterface for all interfaces
	// that begin with the rest ("+" for iptables).
	wildcard = "*"
	// endOfName is the last digit of an interface's name, so that none is the
	// beginning of another.
	endOfName = "\x00"
	// maxInterfaceName is IFNAMSIZ without the terminating zero.
	maxInterfaceName = 15
)

type addressSpace struct {
	names     Names
	direction model.Direction
	family    model.Family
}

func (s addressSpace) match(digits string) tables.Match {
	return tables.MatchPrefix{Side: dispatchSide(s.direction), Prefix: s.prefix(digits)}
}

func (s addressSpace) chain(digits string) string {
	p := s.prefix(digits)
	// The bits end with a one: a chain has at least two keys, so there is room for it.
	whole := s.prefix(digits + "1").Addr().AsSlice()
	return s.names.treeChain(s.direction, strings.ReplaceAll(p.String(), ":", "."), whole)
}

func (s addressSpace) origin(digits string) tables.Origin {
	return tables.OfAddresses{Prefix: s.prefix(digits)}
}

func (s addressSpace) comment() string { return dispatchComment(s.direction) }

// prefix is the inverse of addressDigits, for the first bits too.
func (s addressSpace) prefix(digits string) netip.Prefix {
	b := make([]byte, 4)
	if s.family == model.IPv6 {
		b = make([]byte, 16)
	}
	for i, d := range []byte(digits) {
		b[i/8] |= (d - '0') << (7 - i%8)
	}
	a, _ := netip.AddrFromSlice(b)
	return netip.PrefixFrom(a, len(digits))
}

// addressDigits returns the bits of an address as a string of '0' and '1'.
func addressDigits(a netip.Addr) string {
	b := a.Unmap().AsSlice()
	digits := make([]byte, 8*len(b))
	for i := range digits {
		digits[i] = '0' + b[i/8]>>(7-i%8)&1
	}
	return string(digits)
}

type interfaceSpace struct {
	names     Names
	direction model.Direction
}

func (s interfaceSpace) match(digits string) tables.Match {
	name, whole := strings.CutSuffix(digits, endOfName)
	if !whole {
		name += wildcard
	}
	return tables.MatchInterface{Side: dispatchSide(s.direction), Name: name}
}

// chain names end in two dots, so that they differ from those of static chains.
func (s interfaceSpace) chain(digits string) string {
	return s.names.treeChain(s.direction, digits+"..", []byte(digits))
}

func (s interfaceSpace) origin(string) tables.Origin { return tables.OfEveryPod{} }

func (s interfaceSpace) comment() string { return "pods at the interface" }
