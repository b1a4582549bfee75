package kernel

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/felixlike/felixlike/internal/nfnetlink"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/tables"
)

// readSets reads the list of sets and maps.
func (c *Conn) readSets(table string) (map[string]*Set, error) {
	sets := map[string]*Set{}
	err := c.dump(unix.NFT_MSG_GETSET, inTable(unix.NFTA_SET_TABLE, table), func() { clear(sets) }, func(b []byte) {
		if name, s, anonymous := decodeSet(b); !anonymous {
			sets[name] = s
		}
	})
	return sets, err
}

// decodeSet decodes a set without its elements. A foreign type, or a property that our sets do not have,
// gives the zero shape. Anonymous sets are parts of rules.
func decodeSet(b []byte) (name string, s *Set, anonymous bool) {
	var t kernelType
	foreign := false
	for kind, v := range nfnetlink.Attributes(b) {
		switch kind {
		case unix.NFTA_SET_NAME:
			name = nfnetlink.Text(v)
		case unix.NFTA_SET_FLAGS:
			t.flags = nfnetlink.Uint32(v)
		case unix.NFTA_SET_KEY_TYPE:
			t.key = nfnetlink.Uint32(v)
		case unix.NFTA_SET_KEY_LEN:
			t.keyLength = nfnetlink.Uint32(v)
		case unix.NFTA_SET_DATA_TYPE:
			t.data = nfnetlink.Uint32(v)
		case unix.NFTA_SET_DESC:
			foreign = foreign || limitedSize(v)
		case unix.NFTA_SET_TIMEOUT, unix.NFTA_SET_GC_INTERVAL, unix.NFTA_SET_POLICY, unix.NFTA_SET_OBJ_TYPE, setExpr, setExpressions:
			foreign = true
		}
	}
	s = &Set{}
	for _, sh := range shapes() {
		if !foreign && sh.kernelType() == t {
			s.Shape = sh
		}
	}
	return name, s, t.flags&unix.NFT_SET_ANONYMOUS != 0
}

// setExpr and setExpressions are NFTA_SET_EXPR and NFTA_SET_EXPRESSIONS: the statements that run for an
// element.
const (
	setExpr        = 17
	setExpressions = 18
)

// limitedSize reports whether a description of a set bounds its members.
func limitedSize(b []byte) bool {
	for kind, v := range nfnetlink.Attributes(b) {
		if kind == unix.NFTA_SET_DESC_SIZE && nfnetlink.Uint32(v) != 0 {
			return true
		}
	}
	return false
}

// shapes lists all shapes of our sets.
func shapes() []Shape {
	out := []Shape{{Kind: model.Grants, Family: model.IPv6}, {Kind: model.AnyPortGrants, Family: model.IPv6}}
	for _, f := range model.Families() {
		out = append(out, Shape{Kind: model.Addresses, Family: f, Verdicts: true},
			Shape{Kind: model.Addresses, Family: f, Numbers: true}, Shape{Kind: model.Networks, Family: f, Numbers: true})
		for _, k := range []model.GroupKind{model.Addresses, model.Networks, model.AddressPorts, model.Loops, model.Senders} {
			out = append(out, Shape{Kind: k, Family: f})
		}
	}
	return out
}

// readMembers reads the elements of a set into s. If there are too many, it marks the
// shape of s as unknown, so that Apply rebuilds it. It does not read sets that are not
// wanted.
func (c *Conn) readMembers(table, set string, s *Set) (err error) {
	if c.Wanted == nil {
		elements, err := c.readElements(table, set)
		if err == nil {
			s.Members, s.Regular = decodeMembers(s.Shape, elements)
		}
		return err
	}
	wanted, ok := c.Wanted.ElementsOf(set)
	if !ok {
		return nil
	}
	raw, err := netlink.Dial(unix.NETLINK_NETFILTER, &netlink.Config{NetNS: c.netns})
	if err != nil {
		return fmt.Errorf("connect to nftables: %w", err)
	}
	side := &sideDump{raw: raw, elements: &c.elements, wanted: wanted, limit: wanted + spareElements, deadline: time.Now().Add(c.Patience)}
	c.side = side
	defer func() {
		c.side = nil
		err = errors.Join(err, raw.Close())
	}()
	elements, err := c.readElements(table, set)
	switch {
	case side.exceeded:
		*s = Set{}
		return nil
	case err == nil:
		s.Members, s.Regular = decodeMembers(s.Shape, elements)
	}
	return err
}

// readElements reads the elements of a set. They are good until the next call.
func (c *Conn) readElements(table, set string) ([]element, error) {
	filter := append(inTable(unix.NFTA_SET_ELEM_LIST_TABLE, table),
		netlink.Attribute{Type: unix.NFTA_SET_ELEM_LIST_SET, Data: nfnetlink.CString(set)})
	err := c.dump(unix.NFT_MSG_GETSETELEM, filter, func() { c.elements = c.elements[:0] }, func(b []byte) {
		for kind, list := range nfnetlink.Attributes(b) {
			if kind != unix.NFTA_SET_ELEM_LIST_ELEMENTS {
				continue
			}
			for _, item := range nfnetlink.Attributes(list) {
				c.elements = append(c.elements, decodeElement(item))
			}
		}
	})
	return c.elements, err
}

// setElementKeyEnd is NFTA_SET_ELEM_KEY_END: the last key of a range of concatenations.
const setElementKeyEnd = 10

func decodeElement(b []byte) element {
	var e element
	for kind, v := range nfnetlink.Attributes(b) {
		switch kind {
		case unix.NFTA_SET_ELEM_KEY:
			for _, data := range nfnetlink.Attributes(v) {
				e.size = copy(e.buffer[:], data)
				e.odd = e.odd || e.size < len(data)
			}
		case setElementKeyEnd:
			for _, data := range nfnetlink.Attributes(v) {
				e.lastSize = copy(e.last[:], data)
			}
		case unix.NFTA_SET_ELEM_FLAGS:
			flags := nfnetlink.Uint32(v)
			e.end = flags&unix.NFT_SET_ELEM_INTERVAL_END != 0
			e.odd = e.odd || flags&^unix.NFT_SET_ELEM_INTERVAL_END != 0
		case unix.NFTA_SET_ELEM_DATA:
			for kind, data := range nfnetlink.Attributes(v) {
				switch {
				case kind == unix.NFTA_DATA_VERDICT:
					e.verdict = decodeVerdict(data)
				case kind == unix.NFTA_DATA_VALUE && len(data) == numberSize:
					e.verdict = tables.Number(binary.NativeEndian.Uint32(data))
				}
			}
		case unix.NFTA_SET_ELEM_USERDATA, unix.NFTA_SET_ELEM_PAD: // comments
		default: // a time to live, a counter or limit, ...
			e.odd = true
		}
	}
	return e
}
