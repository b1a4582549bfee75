package nftables

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/google/nftables/userdata"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/tables"
)

// kernelState is our table as the kernel holds it.
type kernelState struct {
	exists, dormant bool

	chains map[string]*kernelChain
	sets   map[string]*kernelSet
}

// kernelSet is a set as the kernel holds it. The members are known only if
// the set has a shape of ours and regular elements.
type kernelSet struct {
	shape   shape
	regular bool
	members map[model.Member]tables.Action
}

// readAttempts bounds how often a dump is repeated when others change the
// ruleset meanwhile.
const readAttempts = 20

// read reads the whole table, and nothing but that table.
func (c *conn) read(table string) (*kernelState, error) {
	state, err := c.readTable(table)
	if err != nil || !state.exists {
		return state, err
	}
	if state.chains, err = c.readChains(table); err != nil {
		return nil, fmt.Errorf("read chains of inet %s: %w", table, err)
	}
	if err := c.readRules(inTable(unix.NFTA_RULE_TABLE, table), state.chains); err != nil {
		return nil, fmt.Errorf("read rules of inet %s: %w", table, err)
	}
	if state.sets, err = c.readSets(table); err != nil {
		return nil, fmt.Errorf("read sets of inet %s: %w", table, err)
	}
	for name, s := range state.sets {
		elements, err := c.readElements(table, name)
		if errors.Is(err, unix.ENOENT) { // gone meanwhile
			delete(state.sets, name)
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("read elements of set %s of inet %s: %w", name, table, err)
		}
		s.members, s.regular = decodeMembers(s.shape, elements)
	}
	return state, nil
}

// retry repeats a dump that others' changes interrupt. start clears what an
// earlier attempt has left.
func (c *conn) retry(message uint16, filter []netlink.Attribute, start func(), visit func([]byte)) error {
	for range readAttempts {
		start()
		if err := c.dump(message, filter, visit); !errors.Is(err, errInterrupted) {
			return err
		}
	}
	return errInterrupted
}

func (c *conn) readChains(table string) (map[string]*kernelChain, error) {
	chains := map[string]*kernelChain{}
	err := c.retry(unix.NFT_MSG_GETCHAIN, nil, func() { clear(chains) }, func(b []byte) {
		// The kernel lists the chains of all tables of the family.
		if in, name, chain := decodeChain(b); in == table {
			chains[name] = chain
		}
	})
	return chains, err
}

func decodeChain(b []byte) (table, name string, c *kernelChain) {
	c = &kernelChain{}
	for kind, v := range attributes(b) {
		switch kind {
		case unix.NFTA_CHAIN_TABLE:
			table = text(v)
		case unix.NFTA_CHAIN_NAME:
			name = text(v)
		case unix.NFTA_CHAIN_TYPE:
			c.base.chainType = text(v)
		case unix.NFTA_CHAIN_POLICY:
			c.base.policy = number(v)
		case unix.NFTA_CHAIN_HOOK:
			for kind, v := range attributes(v) {
				switch kind {
				case unix.NFTA_HOOK_HOOKNUM:
					c.base.hook = number(v)
				case unix.NFTA_HOOK_PRIORITY:
					c.base.priority = int32(number(v))
				}
			}
		}
	}
	return table, name, c
}

// readRules reads the rules that the filter lets through into their chains.
func (c *conn) readRules(filter []netlink.Attribute, chains map[string]*kernelChain) error {
	start := func() {
		for _, chain := range chains {
			chain.rules = nil
		}
	}
	return c.retry(unix.NFT_MSG_GETRULE, filter, start, func(b []byte) {
		var r kernelRule
		var chain *kernelChain
		for kind, v := range attributes(b) {
			switch kind {
			case unix.NFTA_RULE_CHAIN:
				chain = chains[text(v)]
			case unix.NFTA_RULE_HANDLE:
				r.handle = wideNumber(v)
			case unix.NFTA_RULE_EXPRESSIONS:
				r.digest = c.digests.digest(v)
			case unix.NFTA_RULE_USERDATA:
				r.hash = tables.HashInComment(commentIn(v))
			}
		}
		if chain != nil {
			chain.rules = append(chain.rules, r)
		}
	})
}

func (c *conn) readSets(table string) (map[string]*kernelSet, error) {
	sets := map[string]*kernelSet{}
	err := c.retry(unix.NFT_MSG_GETSET, inTable(unix.NFTA_SET_TABLE, table), func() { clear(sets) }, func(b []byte) {
		if name, s, anonymous := decodeSet(b); !anonymous {
			sets[name] = s
		}
	})
	return sets, err
}

// decodeSet decodes a set without its elements. A type that is none of ours
// gives the zero shape. Anonymous sets are parts of rules.
func decodeSet(b []byte) (name string, s *kernelSet, anonymous bool) {
	var flags, keyType, keyLength, dataType uint32
	for kind, v := range attributes(b) {
		switch kind {
		case unix.NFTA_SET_NAME:
			name = text(v)
		case unix.NFTA_SET_FLAGS:
			flags = number(v)
		case unix.NFTA_SET_KEY_TYPE:
			keyType = number(v)
		case unix.NFTA_SET_KEY_LEN:
			keyLength = number(v)
		case unix.NFTA_SET_DATA_TYPE:
			dataType = number(v)
		}
	}
	s = &kernelSet{}
	for _, sh := range shapes() {
		if sh.kernelType() == (kernelType{flags, keyType, keyLength, dataType}) {
			s.shape = sh
		}
	}
	return name, s, flags&unix.NFT_SET_ANONYMOUS != 0
}

// shapes lists all shapes that sets of ours can have.
func shapes() []shape {
	var out []shape
	for _, f := range model.Families() {
		out = append(out, shape{kind: model.Addresses, family: f, verdicts: true})
		for _, k := range []model.GroupKind{model.Addresses, model.Networks, model.AddressPorts} {
			out = append(out, shape{kind: k, family: f})
		}
	}
	return out
}

func (c *conn) readElements(table, set string) ([]element, error) {
	var out []element
	filter := append(inTable(unix.NFTA_SET_ELEM_LIST_TABLE, table),
		netlink.Attribute{Type: unix.NFTA_SET_ELEM_LIST_SET, Data: zeroEnded(set)})
	err := c.retry(unix.NFT_MSG_GETSETELEM, filter, func() { out = nil }, func(b []byte) {
		for kind, list := range attributes(b) {
			if kind != unix.NFTA_SET_ELEM_LIST_ELEMENTS {
				continue
			}
			for _, item := range attributes(list) {
				out = append(out, decodeElement(item))
			}
		}
	})
	return out, err
}

func decodeElement(b []byte) element {
	var e element
	for kind, v := range attributes(b) {
		switch kind {
		case unix.NFTA_SET_ELEM_KEY:
			for _, data := range attributes(v) {
				e.key = bytes.Clone(data)
			}
		case unix.NFTA_SET_ELEM_FLAGS:
			flags := number(v)
			e.end = flags&unix.NFT_SET_ELEM_INTERVAL_END != 0
			e.odd = e.odd || flags&^unix.NFT_SET_ELEM_INTERVAL_END != 0
		case unix.NFTA_SET_ELEM_DATA:
			for kind, data := range attributes(v) {
				if kind == unix.NFTA_DATA_VERDICT {
					e.verdict = decodeVerdict(data)
				}
			}
		case unix.NFTA_SET_ELEM_TIMEOUT, unix.NFTA_SET_ELEM_EXPIRATION:
			e.odd = true
		}
	}
	return e
}

// decodeVerdict returns the action a verdict stands for, nil if none of ours.
func decodeVerdict(b []byte) tables.Action {
	var code int32
	var chain string
	for kind, v := range attributes(b) {
		switch kind {
		case unix.NFTA_VERDICT_CODE:
			code = int32(number(v))
		case unix.NFTA_VERDICT_CHAIN:
			chain = text(v)
		}
	}
	return verdictAction(code, chain)
}

// commentIn returns the comment in a rule's userdata, or "". The library's
// reader panics on data that others have written badly, so this one looks for
// itself.
func commentIn(data []byte) string {
	for len(data) >= 2 && len(data) >= 2+int(data[1]) {
		kind, v := userdata.Type(data[0]), data[2:2+int(data[1])]
		if kind == userdata.TypeComment {
			return text(v)
		}
		data = data[2+len(v):]
	}
	return ""
}

func inTable(kind uint16, table string) []netlink.Attribute {
	return []netlink.Attribute{{Type: kind, Data: zeroEnded(table)}}
}

func zeroEnded(s string) []byte { return append([]byte(s), 0) }

func text(b []byte) string { return string(bytes.TrimRight(b, "\x00")) }

// number decodes a 32-bit attribute; nftables sends them in network order.
func number(b []byte) uint32 {
	if len(b) != 4 {
		return 0
	}
	return binary.BigEndian.Uint32(b)
}

func wideNumber(b []byte) uint64 {
	if len(b) != 8 {
		return 0
	}
	return binary.BigEndian.Uint64(b)
}
