package nftables

import (
	"fmt"
	"net/netip"

	"github.com/gaissmai/bart"
	nft "github.com/google/nftables"
	"golang.org/x/sys/unix"

	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/tables"
	"github.com/felixlike/felixlike/tables/nftables/expression"
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

// kernelType is the type of a set in the kernel's terms.
type kernelType struct{ flags, key, keyLength, data uint32 }

// kernelType returns the type of sets of this shape. The numbers of data types
// are an agreement among the programs of user space; the kernel only keeps
// them.
func (sh shape) kernelType() kernelType {
	t := kernelType{key: nft.TypeIPAddr.GetNFTMagic(), keyLength: uint32(expression.AddressSize(sh.family))}
	if sh.family == model.IPv6 {
		t.key = nft.TypeIP6Addr.GetNFTMagic()
	}
	switch sh.kind {
	case model.Networks:
		t.flags = unix.NFT_SET_INTERVAL
	case model.AddressPorts:
		// Each part of a concatenation takes whole registers of 4 bytes.
		t.key = (t.key<<nft.SetConcatTypeBits|nft.TypeInetProto.GetNFTMagic())<<nft.SetConcatTypeBits | nft.TypeInetService.GetNFTMagic()
		t.keyLength += 4 + 4
	}
	if sh.kind == model.Loops {
		t.key = t.key<<nft.SetConcatTypeBits | t.key
		t.keyLength *= 2
	}
	if sh.verdicts {
		t.flags |= unix.NFT_SET_MAP
		t.data = unix.NFT_DATA_VERDICT
	}
	return t
}

// set is one set or verdict map by name: what is wanted of it, what the
// kernel holds of it, and how many wanted rules refer to it.
type set struct {
	name    string
	shape   shape
	wanted  bool
	members members
	// prefixes are the wanted members of a set of networks again, for finding
	// overlaps; ranges counts those that are none.
	prefixes *bart.Lite
	ranges   int
	have     *haveSet // nil: not in the kernel
	held     int      // the members that the kernel had after the last commit
	refs     int
	// changed is the count of changes at which it was last wanted otherwise.
	changed uint64
	// single has each member sent in a message of its own, until all are accepted.
	single bool
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

// adopt makes found what the kernel holds of the set; nil if it has none.
func (s *set) adopt(found *kernelSet) {
	s.have = nil
	var held map[model.Member]tables.Action
	if found != nil {
		s.have = &haveSet{shape: found.shape, reload: !found.regular}
		if found.shape == s.shape {
			held = found.members
		}
	}
	s.members.rebase(held)
}

// add wants the member; verdict is nil but in verdict maps.
func (s *set) add(m model.Member, verdict tables.Action) {
	if _, wanted := s.members.want[m]; m.Last.IsValid() && !wanted {
		s.ranges++
	}
	s.members.set(m, verdict)
	if s.shape.kind == model.Networks && !m.Last.IsValid() {
		s.prefixes.Insert(m.Prefix)
	}
}

// remove no longer wants the member.
func (s *set) remove(m model.Member) {
	s.members.remove(m)
	if m.Last.IsValid() {
		s.ranges--
		return
	}
	s.prefixes.Delete(m.Prefix)
}

// reshape changes what the set is wanted to be.
func (s *set) reshape(sh shape) {
	s.shape = sh
	s.prefixes = new(bart.Lite)
	if sh.kind == model.Networks {
		for m := range s.members.want {
			if !m.Last.IsValid() {
				s.prefixes.Insert(m.Prefix)
			}
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

// overlap returns two wanted members of a set with ranges that share addresses,
// or that it cannot have.
func (s *set) overlap() error {
	last := model.Member{}
	for _, c := range s.members.sorted() {
		m := c.member
		if last.Prefix.IsValid() && !last.Range().To().Less(m.Prefix.Addr()) {
			return fmt.Errorf("member %s overlaps member %s", m, last)
		}
		last = m
	}
	return nil
}

// unused reports whether nothing is left to know about the set.
func (s *set) unused() bool {
	return !s.wanted && s.have == nil && s.refs == 0 && len(s.members.want) == 0
}
