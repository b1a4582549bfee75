package nftables

import (
	"net/netip"

	"github.com/gaissmai/bart"
	nft "github.com/google/nftables"
	"github.com/google/nftables/binaryutil"

	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/tables"
)

// shape is the type of a set in the kernel. A verdict map is a set of
// addresses whose members carry verdicts.
type shape struct {
	kind     model.GroupKind
	family   model.Family
	verdicts bool
}

// noun returns what people call a set of this shape.
func (sh shape) noun() string {
	if sh.verdicts {
		return "map"
	}
	return "set"
}

// kernelSet returns the library's description of a set of this shape.
func (sh shape) kernelSet(table *nft.Table, name string) *nft.Set {
	key := nft.TypeIPAddr
	if sh.family == model.IPv6 {
		key = nft.TypeIP6Addr
	}
	if sh.kind == model.AddressPorts {
		// Three types fit: the library takes up to five.
		key = nft.MustConcatSetType(key, nft.TypeInetProto, nft.TypeInetService)
	}
	s := &nft.Set{
		Table: table, Name: name,
		KeyType: key, KeyByteOrder: binaryutil.BigEndian,
		Interval: sh.kind == model.Networks,
	}
	if sh.verdicts {
		s.IsMap, s.DataType = true, nft.TypeVerdict
	}
	return s
}

// set is one set or verdict map by name: what is wanted of it, what the
// kernel holds of it, and how many wanted rules refer to it.
type set struct {
	name    string
	shape   shape
	wanted  bool
	members members
	// prefixes are the wanted members of a set of networks again, for finding
	// overlaps.
	prefixes *bart.Lite
	have     *haveSet // nil: not in the kernel
	refs     int
}

// haveSet is a set as the kernel holds it.
type haveSet struct {
	shape shape
	// reload tells that the kernel's elements are no state that we could have
	// written: they are to be flushed and written anew.
	reload bool
}

func newSet(name string) *set {
	return &set{name: name, members: newMembers(), prefixes: new(bart.Lite)}
}

// add wants the member; verdict is nil but in verdict maps.
func (s *set) add(m model.Member, verdict tables.Action) {
	s.members.set(m, verdict)
	if s.shape.kind == model.Networks {
		s.prefixes.Insert(m.Prefix)
	}
}

// remove no longer wants the member.
func (s *set) remove(m model.Member) {
	s.members.remove(m)
	s.prefixes.Delete(m.Prefix)
}

// reshape changes what the set is wanted to be.
func (s *set) reshape(sh shape) {
	s.shape = sh
	s.prefixes = new(bart.Lite)
	if sh.kind == model.Networks {
		for m := range s.members.want {
			s.prefixes.Insert(m.Prefix)
		}
	}
}

// overlapping returns another wanted prefix that shares addresses with p.
func (s *set) overlapping(p netip.Prefix) (netip.Prefix, bool) {
	for o := range s.prefixes.Supernets(p) {
		if o != p {
			return o, true
		}
	}
	for o := range s.prefixes.Subnets(p) {
		if o != p {
			return o, true
		}
	}
	return netip.Prefix{}, false
}

// unused reports whether nothing is left to know about the set.
func (s *set) unused() bool {
	return !s.wanted && s.have == nil && s.refs == 0 && len(s.members.want) == 0
}
