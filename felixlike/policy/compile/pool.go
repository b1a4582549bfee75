package compile

import (
	"errors"
	"fmt"
	"math/big"
	"net/netip"

	"go4.org/netipx"

	"github.com/felixlike/felixlike/felixlike/antrea"
	"github.com/felixlike/felixlike/felixlike/policy/label"
	"github.com/felixlike/felixlike/model"
)

// Pool is a compiled ExternalIPPool.
type Pool struct {
	// Ranges are the addresses, in the order in which they are allocated.
	Ranges []PoolRange
	// Nodes matches the nodes that may hold them. It is nil if no node may.
	Nodes *label.Selector
}

// PoolRange is a range of addresses. Field is its place in the object.
type PoolRange struct {
	netipx.IPRange
	Field string
}

// Contains reports whether the pool has an address.
func (p *Pool) Contains(a netip.Addr) bool {
	for _, r := range p.Ranges {
		if r.Contains(a) {
			return true
		}
	}
	return false
}

// Size returns how many addresses the pool has, and most if there are more.
func (p *Pool) Size(most int64) int64 {
	var b netipx.IPSetBuilder // ranges may overlap
	for _, r := range p.Ranges {
		b.AddRange(r.IPRange)
	}
	set, err := b.IPSet()
	if err != nil {
		return 0 // no range is invalid
	}
	total := new(big.Int)
	for _, r := range set.Ranges() {
		from, to := new(big.Int).SetBytes(r.From().AsSlice()), new(big.Int).SetBytes(r.To().AsSlice())
		total.Add(total, to.Sub(to, from)).Add(total, big.NewInt(1))
	}
	if !total.IsInt64() || total.Int64() > most {
		return most
	}
	return total.Int64()
}

// PoolOf compiles an ExternalIPPool of either API, and reports its invalid parts. An invalid range has no addresses. If another part is
// invalid, no node may hold an address.
func PoolOf(object antrea.Object) (Pool, []model.Problem) {
	c := &tieredCompiler{compiler: compiler{Report: Report{Object: object.ID().Ref()}}}
	spec := antrea.PoolOf(object)
	var p Pool
	for i, r := range spec.IPRanges {
		field := fmt.Sprintf("spec.ipRanges[%d]", i)
		found, err := poolRange(r)
		if err != nil {
			c.Add(field, "%v; it has no addresses", err)
			continue
		}
		p.Ranges = append(p.Ranges, PoolRange{found, field})
	}
	const effect = "; no node holds an address of the pool"
	p.Nodes = c.selector(&spec.NodeSelector, "spec.nodeSelector", effect)
	if len(spec.SubnetInfo) > 0 && string(spec.SubnetInfo) != "null" {
		c.Add("spec.subnetInfo", "not supported"+effect)
		p.Nodes = nil
	}
	return p, c.Problems
}

// notSources are the addresses that packets to other networks cannot have: unspecified, loopback, link-local and multicast ones.
func notSources() []netip.Prefix {
	var all []netip.Prefix
	for _, text := range []string{"0.0.0.0/32", "127.0.0.0/8", "169.254.0.0/16", "224.0.0.0/4", "::/127", "::ffff:0:0/96", "fe80::/10", "ff00::/8"} {
		all = append(all, netip.MustParsePrefix(text))
	}
	return all
}

// poolRange returns the addresses of a range. An IPv4 prefix is without the first and the last one, which name the subnet and all of
// its hosts, and an IPv6 prefix without the first one, which is any router's.
func poolRange(r antrea.IPRange) (netipx.IPRange, error) {
	if r.CIDR != "" && (r.Start != "" || r.End != "") || r.CIDR == "" && (r.Start == "" || r.End == "") {
		return netipx.IPRange{}, errors.New("needs either cidr, or start and end")
	}
	var found netipx.IPRange
	if r.CIDR != "" {
		prefix, err := ParseCIDR(r.CIDR)
		if err != nil {
			return netipx.IPRange{}, err
		}
		found = netipx.RangeOfPrefix(prefix)
		if bits := prefix.Addr().BitLen(); prefix.Bits() < bits-1 {
			from, to := found.From().Next(), found.To()
			if prefix.Addr().Is4() {
				to = to.Prev()
			}
			found = netipx.IPRangeFrom(from, to)
		}
	} else {
		var ends [2]netip.Addr
		for i, text := range [...]string{r.Start, r.End} {
			a, err := netip.ParseAddr(text)
			if err != nil || a.Zone() != "" || a.Is4In6() {
				return netipx.IPRange{}, fmt.Errorf("%q is no address", text)
			}
			ends[i] = a
		}
		found = netipx.IPRangeFrom(ends[0], ends[1])
		if !found.IsValid() {
			return netipx.IPRange{}, fmt.Errorf("%s is not before %s", r.Start, r.End)
		}
	}
	for _, special := range notSources() {
		if found.Overlaps(netipx.RangeOfPrefix(special)) {
			return netipx.IPRange{}, fmt.Errorf("has addresses of %s, which packets to other networks cannot have", special)
		}
	}
	return found, nil
}
