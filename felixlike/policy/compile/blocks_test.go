package compile

import (
	"encoding/binary"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"

	"go4.org/netipx"

	"github.com/felixlike/felixlike/ipsets"
	"github.com/felixlike/felixlike/model"
)

// TestMembersOfBlocks: for random blocks and exceptions, the members have exactly the
// addresses of the blocks. There are at most as many members as prefixes, and at most one
// range for each block and exception.
func TestMembersOfBlocks(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 3000 {
		blocks, named, cidrs := randomBlocks(r)
		members, err := blockMembers(blocks)
		if err != nil {
			t.Fatal(err)
		}
		if len(members) > named+cidrs {
			t.Fatalf("%v: %d members of %d prefixes: %v", blocks, len(members), named, members)
		}
		ranges := ipsets.Ranges(members)
		if len(ranges) > named {
			t.Fatalf("%v: %d ranges of %d prefixes: %v", blocks, len(ranges), named, ranges)
		}
		for i := 1; i < len(ranges); i++ {
			if !ranges[i-1].To().Next().Less(ranges[i].From()) {
				t.Fatalf("%v: ranges overlap or touch: %v", blocks, ranges)
			}
		}
		for n := range 64 {
			a := smallAddress(uint8(n), n%3 == 0)
			want := slices.ContainsFunc(blocks, func(b ipBlock) bool {
				return b.cidr.Contains(a) && !slices.ContainsFunc(b.excepts, func(e netip.Prefix) bool { return e.Contains(a) })
			})
			if got := longest(members, a); got != want {
				t.Fatalf("%v has %s: %v, want %v; members %v", blocks, a, got, want, members)
			}
			if got := slices.ContainsFunc(ranges, func(r netipx.IPRange) bool { return r.Contains(a) }); got != want {
				t.Fatalf("%v has %s: %v by ranges, want %v; ranges %v", blocks, a, got, want, ranges)
			}
		}
	}
}

// longest reports whether the longest matching prefix includes the address.
func longest(members []model.Member, a netip.Addr) bool {
	bits, has := -1, false
	for _, m := range members {
		if m.Prefix.Contains(a) && m.Prefix.Bits() > bits {
			bits, has = m.Prefix.Bits(), !m.Except
		}
	}
	return has
}

// smallAddress is one of 64 addresses at either end of the address space.
func smallAddress(n uint8, high bool) netip.Addr {
	v := uint32(n % 32)
	if high {
		v |= ^uint32(31)
	}
	return netip.AddrFrom4([4]byte(binary.BigEndian.AppendUint32(nil, v)))
}

func randomBlocks(r *rand.Rand) (blocks []ipBlock, named, cidrs int) {
	prefix := func(from int) netip.Prefix {
		bits := from + r.IntN(33-from)
		p, _ := smallAddress(uint8(r.IntN(32)), r.IntN(2) == 0).Prefix(bits)
		return p
	}
	for range 1 + r.IntN(4) {
		from := []int{0, 26, 27, 28, 30}[r.IntN(5)]
		b := ipBlock{cidr: prefix(from)}
		if from == 0 {
			b.cidr = netip.MustParsePrefix("0.0.0.0/0")
		}
		named++
		cidrs++
		for range r.IntN(5) {
			e := prefix(max(from, 26))
			if b.cidr.Contains(e.Addr()) && e.Bits() > b.cidr.Bits() {
				b.excepts = append(b.excepts, e)
				named++
			}
		}
		blocks = append(blocks, b)
	}
	return blocks, named, cidrs
}

// TestManyExceptionsStayFew takes 10,000 single addresses out of all of IPv6.
func TestManyExceptionsStayFew(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	b := ipBlock{cidr: netip.MustParsePrefix("::/0")}
	for range 10_000 {
		var a [16]byte
		binary.BigEndian.PutUint64(a[:], r.Uint64())
		binary.BigEndian.PutUint64(a[8:], r.Uint64())
		b.excepts = append(b.excepts, netip.PrefixFrom(netip.AddrFrom16(a), 128))
	}
	members, err := blockMembers([]ipBlock{b})
	if err != nil || len(members) > 10_002 {
		t.Fatalf("%d members, %v", len(members), err)
	}
	if n := len(ipsets.Ranges(members)); n > 10_001 {
		t.Errorf("%d ranges", n)
	}
}
