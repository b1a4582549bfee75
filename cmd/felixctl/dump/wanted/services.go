package wanted

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"go4.org/netipx"

	"github.com/felixlike/felixlike/cmd/felixctl/dump"
	"github.com/felixlike/felixlike/felixlike/backend"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/rules"
	"github.com/felixlike/felixlike/tables"
)

// notedServices stands in for the driver of the Services table. It notes what is wanted, and programs nothing.
type notedServices struct {
	*noted
	large map[string]*notedLarge
}

// notedLarge is a set or map with its values by key.
type notedLarge struct {
	tables.LargeSet
	values map[string]string
}

// UpdateSet implements managers.ServiceTable.
func (n *notedServices) UpdateSet(s tables.LargeSet) {
	if n.large[s.Name] == nil {
		n.large[s.Name] = &notedLarge{s, map[string]string{}}
	}
}

// RemoveSet implements managers.ServiceTable.
func (n *notedServices) RemoveSet(name string) { delete(n.large, name) }

// Put implements managers.ServiceTable.
func (n *notedServices) Put(set, key, value string) { n.large[set].values[key] = value }

// Remove implements managers.ServiceTable.
func (n *notedServices) Remove(set, key string) { delete(n.large[set].values, key) }

// services adds the table of Services. The node holds none before all Services are known.
func (n *Node) services(c backend.Config) {
	noted := &notedServices{newNoted(), map[string]*notedLarge{}}
	manager := backend.ServiceManager(c, noted)
	n.managers = append(n.managers, manager)
	n.read = append(n.read, func(s *dump.State) error {
		if !manager.Known() {
			return nil
		}
		t := noted.table(rules.ServicesTable)
		for _, c := range t.Chains {
			for i := range c.Rules {
				c.Rules[i] = c.Rules[i].Listed()
			}
		}
		for _, name := range sortedKeys(noted.large) {
			t.Sets = append(t.Sets, noted.large[name].set())
		}
		s.Tables = append(s.Tables, t)
		return nil
	})
}

// set returns what nft would list of the set.
func (l *notedLarge) set() *dump.Set {
	address := "ipv4_addr"
	if l.Family == model.IPv6 {
		address = "ipv6_addr"
	}
	out := &dump.Set{Name: l.Name, Family: l.Family, Verdicts: l.Verdicts}
	names := func(parts []tables.Part) string {
		all := make([]string, len(parts))
		for i, p := range parts {
			all[i] = [...]string{tables.AddressPart: address, tables.ProtocolPart: "inet_proto", tables.PortPart: "inet_service", tables.NumberPart: "mark"}[p]
		}
		return strings.Join(all, " . ")
	}
	out.Type = names(l.Key)
	switch {
	case l.Verdicts:
		out.Type += " : verdict"
	case len(l.Value) > 0:
		out.Type += " : " + names(l.Value)
	}
	switch l.Form {
	case tables.Intervals:
		out.Type, out.Kind = out.Type+" flags interval", model.Networks
		out.Elements = l.intervals()
	case tables.Ranges:
		out.Type += " flags interval"
	case tables.Clients:
		out.Type += " flags dynamic,timeout"
	}
	switch out.Type {
	case address + " . inet_proto . inet_service":
		out.Kind = model.AddressPorts
	case address + " . " + address:
		out.Kind = model.Loops
	case address:
		out.Kind = model.Addresses
	}
	if l.Form != tables.Intervals {
		for key, value := range l.values {
			out.Elements = append(out.Elements, l.element(out.Kind, key, value))
		}
	}
	slices.SortFunc(out.Elements, dump.Element.Compare)
	return out
}

// intervals returns the prefixes of a set of boundaries.
func (l *notedLarge) intervals() (all []dump.Element) {
	bounds := sortedKeys(l.values)
	for i, b := range bounds {
		if b[len(b)-1] != tables.IntervalStart {
			continue
		}
		from, _ := netip.AddrFromSlice([]byte(b[:len(b)-1]))
		to := netipx.PrefixLastIP(netip.PrefixFrom(from, 0)) // the end of the address space has no boundary
		if i+1 < len(bounds) {
			end, _ := netip.AddrFromSlice([]byte(bounds[i+1][:len(b)-1]))
			to = end.Prev()
		}
		all = append(all, dump.Element{Member: model.RangeMember(netipx.IPRangeFrom(from, to))})
	}
	return all
}

// element returns an element of the kind, in nft's words if there is none.
func (l *notedLarge) element(kind model.GroupKind, key, value string) (e dump.Element) {
	r := partReader{family: l.Family, bytes: key}
	switch {
	case kind == model.AddressPorts:
		a := r.address()
		e.Member = model.Member{Prefix: netip.PrefixFrom(a, a.BitLen()), Protocol: r.protocol(), Port: r.port()}
		return e
	case kind == model.Loops, kind == model.Addresses:
		e.Member = model.AddressMember(r.address())
		return e
	}
	e.Parts = &dump.Parts{}
	switch {
	case l.Form == tables.Ranges:
		last := partReader{family: l.Family, bytes: key[len(key)/2:]}
		last.text(l.Key[:len(l.Key)-1])
		e.Text = r.text(l.Key[:len(l.Key)-1]) + " . " + rangeText(r.address(), last.address())
	case len(l.Key) == 1: // nft does not know that the number is in the order of the host
		e.Text = fmt.Sprintf("0x%08x", binary.BigEndian.Uint32([]byte(key)))
	default:
		e.Text = r.text(l.Key)
	}
	r = partReader{family: l.Family, bytes: value}
	switch chain, leads := strings.CutPrefix(value, tables.GotoValue); {
	case l.Verdicts && leads:
		e.Verdict = tables.Goto{Chain: chain}
	case l.Verdicts:
		e.Verdict = tables.Drop{}
	case len(l.Value) > 0:
		e.Value = r.text(l.Value)
	}
	return e
}

// rangeText writes a range as nft does.
func rangeText(from, to netip.Addr) string {
	switch p, ok := netipx.IPRangeFrom(from, to).Prefix(); {
	case from == to:
		return from.String()
	case ok:
		return p.String()
	}
	return from.String() + "-" + to.String()
}

// partReader reads the parts of a key or a value (tables.AppendAddress and others).
type partReader struct {
	family model.Family
	bytes  string
}

func (r *partReader) next(n int) []byte {
	part := []byte(r.bytes[:n])
	r.bytes = r.bytes[n:]
	return part
}

func (r *partReader) address() netip.Addr {
	size := 4
	if r.family == model.IPv6 {
		size = 16
	}
	a, _ := netip.AddrFromSlice(r.next(size))
	return a
}

func (r *partReader) protocol() model.Protocol { return model.Protocol(r.next(4)[0]) }

func (r *partReader) port() uint16 { return binary.BigEndian.Uint16(r.next(4)) }

// text writes parts in nft's words.
func (r *partReader) text(parts []tables.Part) string {
	all := make([]string, len(parts))
	for i, p := range parts {
		switch p {
		case tables.AddressPart:
			all[i] = r.address().String()
		case tables.ProtocolPart:
			all[i] = r.protocol().String()
		case tables.PortPart:
			all[i] = fmt.Sprint(r.port())
		case tables.NumberPart:
			all[i] = fmt.Sprintf("0x%08x", binary.NativeEndian.Uint32(r.next(4)))
		}
	}
	return strings.Join(all, " . ")
}
