package kernel

import (
	"cmp"
	"fmt"
	"strings"

	nft "github.com/google/nftables"
	"github.com/google/nftables/userdata"
	"golang.org/x/sys/unix"

	"github.com/felixlike/felixlike/internal/nfnetlink"
	"github.com/felixlike/felixlike/tables"
	"github.com/felixlike/felixlike/tables/nftables/expression"
)

// Element is an element of a tables.LargeSet: bytes, or a verdict as text.
type Element struct{ Key, Value string }

// ElementsPerMessage bounds the elements of one message about a LargeSet: the largest takes some 150 bytes.
const ElementsPerMessage = 400

// MaxClients bounds the elements that packets bring to a map (tables.Clients). A packet that finds it full goes on without.
const MaxClients = 1 << 18

// LargeType is the type of a set as the kernel has it. Two sets of one type take the same elements.
type LargeType struct {
	flags, key, keyLength, data, dataLength, size uint32
	odd                                           bool
}

// partType returns nft's number of a part's type, its bytes in a register, and its bytes.
func partType(s *tables.LargeSet, p tables.Part) (kind, padded, bytes uint32) {
	switch p {
	case tables.AddressPart:
		size := uint32(expression.AddressSize(s.Family))
		if size == 4 {
			return nft.TypeIPAddr.GetNFTMagic(), size, size
		}
		return nft.TypeIP6Addr.GetNFTMagic(), size, size
	case tables.ProtocolPart:
		return nft.TypeInetProto.GetNFTMagic(), 4, 1
	case tables.PortPart:
		return nft.TypeInetService.GetNFTMagic(), 4, 2
	}
	return nft.TypeMark.GetNFTMagic(), 4, 4
}

func concatenation(s *tables.LargeSet, parts []tables.Part) (kind, length uint32) {
	for _, p := range parts {
		t, padded, _ := partType(s, p)
		kind, length = kind<<nft.SetConcatTypeBits|t, length+padded
	}
	return kind, length
}

// TypeOf returns the type that the kernel has of a set.
func TypeOf(s *tables.LargeSet) (t LargeType) {
	t.key, t.keyLength = concatenation(s, s.Key)
	switch s.Form {
	case tables.Intervals:
		t.flags = unix.NFT_SET_INTERVAL
	case tables.Ranges:
		t.flags = unix.NFT_SET_INTERVAL | setConcat
	case tables.Clients:
		t.flags, t.size = unix.NFT_SET_EVAL|unix.NFT_SET_TIMEOUT, MaxClients
	}
	switch {
	case s.Verdicts:
		t.flags, t.data = t.flags|unix.NFT_SET_MAP, unix.NFT_DATA_VERDICT
	case len(s.Value) > 0:
		t.flags |= unix.NFT_SET_MAP
		t.data, t.dataLength = concatenation(s, s.Value)
	}
	return t
}

// encodeLarge writes a set.
func (o *Op) encodeLarge(m *expression.Message, id uint32) {
	t := TypeOf(o.Large)
	m.Text(unix.NFTA_SET_NAME, o.Name)
	m.Uint32(unix.NFTA_SET_FLAGS, t.flags)
	m.Uint32(unix.NFTA_SET_KEY_TYPE, t.key)
	m.Uint32(unix.NFTA_SET_KEY_LEN, t.keyLength)
	m.Uint32(unix.NFTA_SET_ID, id)
	if t.data != 0 {
		m.Uint32(unix.NFTA_SET_DATA_TYPE, t.data)
		m.Uint32(unix.NFTA_SET_DATA_LEN, t.dataLength)
	}
	switch o.Large.Form {
	case tables.Ranges:
		var lengths []uint32
		for _, p := range o.Large.Key {
			_, _, n := partType(o.Large, p)
			lengths = append(lengths, n)
		}
		writeFields(m, lengths...)
	case tables.Clients:
		at := m.Nest(unix.NFTA_SET_DESC)
		m.Uint32(unix.NFTA_SET_DESC_SIZE, t.size)
		m.Close(at)
	}
	// For nft's listing only: addresses and ports are in the order of packets.
	const bigEndian = 2
	orders := nativeNumber([]byte{byte(userdata.NFTNL_UDATA_SET_KEYBYTEORDER), 4}, bigEndian)
	if t.dataLength > 0 {
		orders = nativeNumber(append(orders, byte(userdata.NFTNL_UDATA_SET_DATABYTEORDER), 4), bigEndian)
	}
	m.Data(unix.NFTA_SET_USERDATA, orders)
}

func nativeNumber(b []byte, n uint32) []byte { return tables.AppendNumber(b, n) }

// encodeElements writes the elements of a LargeSet. Deletions have no values.
func (o *Op) encodeElements(m *expression.Message) error {
	m.Text(unix.NFTA_SET_ELEM_LIST_SET, o.Name)
	list := m.Nest(unix.NFTA_SET_ELEM_LIST_ELEMENTS)
	for _, e := range o.Elements {
		element := m.Nest(unix.NFTA_LIST_ELEM)
		key := []byte(e.Key)
		switch o.Large.Form {
		case tables.Intervals:
			if key[len(key)-1] == tables.IntervalEnd {
				m.Uint32(unix.NFTA_SET_ELEM_FLAGS, unix.NFT_SET_ELEM_INTERVAL_END)
			}
			m.Value(unix.NFTA_SET_ELEM_KEY, key[:len(key)-1])
		case tables.Ranges:
			m.Value(unix.NFTA_SET_ELEM_KEY, key[:len(key)/2])
			m.Value(setElementKeyEnd, key[len(key)/2:])
		default:
			m.Value(unix.NFTA_SET_ELEM_KEY, key)
		}
		if o.Kind == AddElements && o.Large.Verdicts {
			if err := m.VerdictData(unix.NFTA_SET_ELEM_DATA, verdictOf(e.Value)); err != nil {
				return err
			}
		} else if o.Kind == AddElements && e.Value != "" {
			m.Value(unix.NFTA_SET_ELEM_DATA, []byte(e.Value))
		}
		m.Close(element)
	}
	m.Close(list)
	return nil
}

func verdictOf(value string) tables.Action {
	if chain, ok := strings.CutPrefix(value, tables.GotoValue); ok {
		return tables.Goto{Chain: chain}
	}
	return tables.Drop{}
}

// ReadTypes returns the types of the sets of a table, by name, without those that are parts of rules.
func (c *Conn) ReadTypes(table string) (map[string]LargeType, error) {
	types := map[string]LargeType{}
	err := c.dump(unix.NFT_MSG_GETSET, inTable(unix.NFTA_SET_TABLE, table), func() { clear(types) }, func(b []byte) {
		var t LargeType
		var name string
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
			case unix.NFTA_SET_DATA_LEN:
				t.dataLength = nfnetlink.Uint32(v)
			case unix.NFTA_SET_DESC:
				for kind, v := range nfnetlink.Attributes(v) {
					if kind == unix.NFTA_SET_DESC_SIZE {
						t.size = nfnetlink.Uint32(v)
					}
				}
			case unix.NFTA_SET_TIMEOUT, unix.NFTA_SET_GC_INTERVAL, unix.NFTA_SET_OBJ_TYPE, setExpr, setExpressions:
				t.odd = true
			}
		}
		if t.data == unix.NFT_DATA_VERDICT {
			t.dataLength = 0 // the kernel reports the bytes of its own structure
		}
		if t.flags&unix.NFT_SET_ANONYMOUS == 0 {
			types[name] = t
		}
	})
	return types, err
}

// ReadElements hands the elements of a set to visit, after start; again from start if others change the set meanwhile. An element
// of a foreign form comes with a value that no map of ours has.
func (c *Conn) ReadElements(table string, s *tables.LargeSet, start func(), visit func(Element)) error {
	filter := named(unix.NFTA_SET_ELEM_LIST_TABLE, table, unix.NFTA_SET_ELEM_LIST_SET, s.Name)
	return c.dump(unix.NFT_MSG_GETSETELEM, filter, start, func(b []byte) {
		for kind, list := range nfnetlink.Attributes(b) {
			if kind == unix.NFTA_SET_ELEM_LIST_ELEMENTS {
				for _, item := range nfnetlink.Attributes(list) {
					if e, ok := decodeLarge(s, item); ok {
						visit(e)
					}
				}
			}
		}
	})
}

// foreignValue is the value of an element that none of ours is equal to.
const foreignValue = "foreign"

func decodeLarge(s *tables.LargeSet, b []byte) (e Element, ok bool) {
	var key, last []byte
	end := byte(tables.IntervalStart)
	for kind, v := range nfnetlink.Attributes(b) {
		switch kind {
		case unix.NFTA_SET_ELEM_KEY:
			key = dataOf(v)
		case setElementKeyEnd:
			last = dataOf(v)
		case unix.NFTA_SET_ELEM_FLAGS:
			if nfnetlink.Uint32(v)&unix.NFT_SET_ELEM_INTERVAL_END != 0 {
				end = tables.IntervalEnd
			}
		case unix.NFTA_SET_ELEM_DATA:
			e.Value = valueOf(v)
		case unix.NFTA_SET_ELEM_USERDATA, unix.NFTA_SET_ELEM_PAD:
		default: // a time to live, a counter
			e.Value = foreignValue
		}
	}
	switch s.Form {
	case tables.Intervals:
		e.Key = string(append(key, end))
		// The kernel may begin a set with the end of an empty interval.
		return e, end == tables.IntervalStart || strings.Trim(e.Key, "\x00") != ""
	case tables.Ranges:
		e.Key = string(key) + string(last)
	default:
		e.Key = string(key)
	}
	return e, true
}

func dataOf(b []byte) []byte {
	for _, v := range nfnetlink.Attributes(b) {
		return v[:len(v):len(v)]
	}
	return nil
}

func valueOf(b []byte) string {
	for kind, v := range nfnetlink.Attributes(b) {
		if kind != unix.NFTA_DATA_VERDICT {
			return string(v)
		}
		switch a := decodeVerdict(v).(type) {
		case tables.Drop:
			return tables.DropValue
		case tables.Goto:
			return tables.GotoValue + a.Chain
		}
	}
	return foreignValue
}

// ReadRules reads the chains of the table with their rules, by name.
func (c *Conn) ReadRules(table string) (map[string]*Chain, error) {
	chains, err := c.ReadChains(table)
	if err != nil {
		return nil, fmt.Errorf("read chains of %s %s: %w", FamilyName(c.family), table, err)
	}
	if err := c.readRules(inTable(unix.NFTA_RULE_TABLE, table), chains); err != nil {
		return nil, fmt.Errorf("read rules of %s %s: %w", FamilyName(c.family), table, err)
	}
	return chains, nil
}

// CompareElements orders elements by their keys. That of boundaries is the order of an interval set.
func CompareElements(a, b Element) int { return cmp.Compare(a.Key, b.Key) }
