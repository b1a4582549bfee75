package kernel

import (
	"cmp"
	"fmt"

	nft "github.com/google/nftables"
	"golang.org/x/sys/unix"

	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/tables"
	"github.com/felixlike/felixlike/tables/nftables/expression"
)

// FamilyName returns nft's name of a family of tables.
func FamilyName(family uint8) string {
	if family == unix.NFPROTO_BRIDGE {
		return "bridge"
	}
	return "inet"
}

// State is our table as the kernel holds it.
type State struct {
	Exists, Dormant bool

	Chains map[string]*Chain
	Sets   map[string]*Set
	Others []Other
}

// Set is a set as the kernel holds it. The members are known only if the set has one of our shapes and
// regular elements.
type Set struct {
	Shape   Shape
	Regular bool
	Members map[model.Member]tables.Action
}

// Chain is a chain as the kernel holds it.
type Chain struct {
	Base  BaseHook
	Rules []Rule
	// uses is the number of its rules and of references to it. It is valid only right
	// after a read.
	uses uint32
}

// Rule is a rule as the kernel holds it. Hash is empty if the rule is not ours.
type Rule struct {
	Hash   string
	Handle uint64
	// Digest is that of the rule's body as the kernel returns it.
	Digest uint64
}

// BaseHook is a hook in the kernel's terms. The zero value stands for a chain
// that is no base chain.
type BaseHook struct {
	chainType string
	hook      uint32
	priority  int32
	policy    uint32
}

// BaseOf returns the wanted hook in the kernel's terms.
func BaseOf(h *tables.Hook) BaseHook {
	if h == nil {
		return BaseHook{}
	}
	b := BaseHook{chainType: h.Type.String(), priority: h.Priority, policy: uint32(nft.ChainPolicyAccept)}
	switch h.Point {
	case tables.HookForward:
		b.hook = unix.NF_INET_FORWARD
	case tables.HookPostrouting:
		b.hook = unix.NF_INET_POST_ROUTING
	case tables.HookPrerouting:
		b.hook = unix.NF_INET_PRE_ROUTING
	case tables.HookInput:
		b.hook = unix.NF_INET_LOCAL_IN
	case tables.HookOutput:
		b.hook = unix.NF_INET_LOCAL_OUT
	}
	return b
}

// Hooked is the hook without its changeable parts.
func (b BaseHook) Hooked() BaseHook {
	b.policy = 0
	return b
}

// Shape is the type of a set in the kernel. A verdict map is a set of
// addresses whose members carry verdicts. The members of a map of numbers, addresses or networks, carry
// numbers (tables.Number).
type Shape struct {
	Kind     model.GroupKind
	Family   model.Family
	Verdicts bool
	Numbers  bool
}

// Noun returns the name of the kind for people.
func (sh Shape) Noun() string {
	if sh.Verdicts || sh.Numbers {
		return "map"
	}
	return "set"
}

// kernelType is the type of a set in the kernel's terms.
type kernelType struct{ flags, key, keyLength, data uint32 }

// macSize is the length of a MAC address in a key, in whole registers of 4 bytes.
const macSize = 8

// setConcat is NFT_SET_CONCAT: an interval set of concatenations (Linux 5.6).
const setConcat = 0x80

// kernelType returns the type of sets of this shape. The numbers of data types
// are an agreement among the programs of user space; the kernel only keeps
// them.
func (sh Shape) kernelType() kernelType {
	t := kernelType{key: nft.TypeIPAddr.GetNFTMagic(), keyLength: uint32(expression.AddressSize(sh.Family))}
	if sh.Family == model.IPv6 {
		t.key = nft.TypeIP6Addr.GetNFTMagic()
	}
	switch sh.Kind {
	case model.Networks:
		t.flags = unix.NFT_SET_INTERVAL
	case model.AddressPorts:
		// Each part of a concatenation takes whole registers of 4 bytes.
		t.key = (t.key<<nft.SetConcatTypeBits|nft.TypeInetProto.GetNFTMagic())<<nft.SetConcatTypeBits | nft.TypeInetService.GetNFTMagic()
		t.keyLength += 4 + 4
	}
	if sh.Kind == model.Loops {
		t.key = t.key<<nft.SetConcatTypeBits | t.key
		t.keyLength *= 2
	}
	if sh.Kind == model.Senders {
		t.flags = unix.NFT_SET_INTERVAL | setConcat
		t.key |= nft.TypeEtherAddr.GetNFTMagic() << nft.SetConcatTypeBits
		t.keyLength += macSize
	}
	if sh.Kind.Grants() {
		t.key, t.keyLength = nft.TypeMark.GetNFTMagic()<<nft.SetConcatTypeBits|nft.TypeMark.GetNFTMagic(), 4+4
	}
	if sh.Kind == model.Grants {
		t.key = (t.key<<nft.SetConcatTypeBits|nft.TypeInetProto.GetNFTMagic())<<nft.SetConcatTypeBits | nft.TypeInetService.GetNFTMagic()
		t.keyLength += 4 + 4
	}
	if sh.Verdicts {
		t.flags |= unix.NFT_SET_MAP
		t.data = unix.NFT_DATA_VERDICT
	}
	if sh.Numbers {
		t.flags |= unix.NFT_SET_MAP
		t.data = nft.TypeMark.GetNFTMagic()
	}
	return t
}

// Change is one member to add or delete.
type Change struct {
	Member  model.Member
	Verdict tables.Action
}

// Compare orders changes by their members.
func (c Change) Compare(o Change) int { return c.Member.Compare(o.Member) }

// String describes the member, or the entry with its verdict.
func (c Change) String() string {
	if c.Verdict == nil {
		return "member " + c.Member.String()
	}
	return fmt.Sprintf("entry %s : %s", c.Member, c.Verdict)
}

// Unit is the smallest object that is quarantined by itself: a chain, a set or map, or
// one entry of a map. A set with one bad member is quarantined as a whole, since the
// effect of a missing member depends on the rules that use the set.
type Unit struct {
	Kind  UnitKind
	Name  string
	Entry model.Member // of entries
}

type UnitKind uint8

// The kinds, in the order in which they are tried: objects come before the rules that
// refer to them. The zero value is the table, which cannot be quarantined.
const (
	SetUnit UnitKind = iota + 1
	ChainUnit
	EntryUnit
)

// Compare orders units by kind, name and entry.
func (u Unit) Compare(o Unit) int {
	return cmp.Or(cmp.Compare(u.Kind, o.Kind), cmp.Compare(u.Name, o.Name), u.Entry.Compare(o.Entry))
}

// Describe names the unit for people.
func (u Unit) Describe() string {
	switch u.Kind {
	case SetUnit:
		return "set " + u.Name
	case ChainUnit:
		return "chain " + u.Name
	case EntryUnit:
		return "map " + u.Name + " " + u.Entry.String()
	}
	return "table"
}

// String describes the hook in the kernel's terms.
func (b BaseHook) String() string {
	if b == (BaseHook{}) {
		return ""
	}
	hook := fmt.Sprint(b.hook)
	for _, p := range []tables.HookPoint{tables.HookForward, tables.HookPostrouting, tables.HookPrerouting, tables.HookInput, tables.HookOutput} {
		if BaseOf(&tables.Hook{Point: p}).hook == b.hook {
			hook = p.String()
		}
	}
	return fmt.Sprintf("%s hook %s priority %d", b.chainType, hook, b.priority)
}

// ObjectError is a tables.ObjectError with the unit that it concerns.
type ObjectError struct {
	tables.ObjectError
	Unit Unit
	// Many says that the message was about more than one entry of a map.
	Many bool
}

// Unwrap returns the ObjectError.
func (e *ObjectError) Unwrap() error { return &e.ObjectError }

// Wanted gives the reader the desired state of a table.
type Wanted interface {
	// HashesOf returns the hashes of the desired rules of a chain. The kernel's rules are mostly the same,
	// and share their strings.
	HashesOf(chain []byte) []string
	// ElementsOf returns the largest number of elements that the kernel has of the set if
	// it is as wanted; false if it is not wanted. Elements of other sets are not read, and
	// of wanted ones not many more.
	ElementsOf(set string) (int, bool)
}

// Other is something in our table of a kind that is never ours: a stateful
// object, or a flowtable.
type Other struct {
	flowtable bool
	Name      string
	// kind is the type of an object, zero for flowtables.
	kind uint32
}

// Noun returns the name of the kind for people.
func (o Other) Noun() string {
	if o.flowtable {
		return "flowtable"
	}
	return "object"
}
