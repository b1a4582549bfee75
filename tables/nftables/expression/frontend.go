package expression

import (
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/tables"
)

// Registers of a DispatchKey beside those of its key.
const (
	regNumber = unix.NFT_REG_3
	regSaved  = reg32 + 13 // behind an address and a port
)

// register names a register of 4 bytes as the kernel and nft do: by its 16-byte number where it begins one.
func register(r uint32) uint32 {
	if at := r - reg32; at%4 == 0 {
		return reg1 + at/4
	}
	return r
}

// words returns how many registers of 4 bytes an address takes.
func words(f model.Family) uint32 { return uint32(AddressSize(f) / 4) }

// key loads the fields of a key into the registers from first on, and returns the one behind them.
func (e *encoder) key(f model.Family, k tables.Key, first uint32) (next uint32, err error) {
	at := first
	for _, field := range k {
		switch field {
		case tables.SourceAddress:
			e.payload(unix.NFT_PAYLOAD_NETWORK_HEADER, addressOffset(f, tables.Source), uint32(AddressSize(f)), register(at))
			at += words(f)
		case tables.DestinationAddress:
			e.payload(unix.NFT_PAYLOAD_NETWORK_HEADER, addressOffset(f, tables.Destination), uint32(AddressSize(f)), register(at))
			at += words(f)
		case tables.UnspecifiedAddress:
			var zero [16]byte
			e.immediateTo(register(at), zero[:AddressSize(f)])
			at += words(f)
		case tables.TransportProtocol:
			e.meta(unix.NFT_META_L4PROTO, register(at))
			at++
		case tables.DestinationPort:
			e.destinationPort(register(at))
			at++
		default:
			return 0, fmt.Errorf("unknown field %s", field)
		}
	}
	return at, nil
}

func (e *encoder) matchKey(m tables.MatchKey) error {
	_, err := e.key(m.Family, m.Key, reg32)
	element, data := e.expression("lookup")
	e.Text(unix.NFTA_LOOKUP_SET, m.Set)
	e.Uint32(unix.NFTA_LOOKUP_SREG, reg1)
	if m.Negated {
		e.Uint32(unix.NFTA_LOOKUP_FLAGS, unix.NFT_LOOKUP_F_INV)
	}
	e.endExpression(element, data)
	return err
}

func (e *encoder) dispatchKey(a tables.DispatchKey) error {
	slot, err := e.key(a.Family, a.Frontend, reg32)
	if err != nil {
		return err
	}
	n := native(a.Slot)
	e.immediateTo(register(slot), n[:])
	e.lookupFrom(reg1, a.Endpoints, regNumber)
	e.move(regNumber, reg1, regSaved)
	e.lookup(a.Map, true)
	return nil
}

// translate looks an endpoint up and makes it the destination. The registers have, one behind the other: with Clients the
// client; the frontend; a number; the endpoint. The client and the frontend are the key of Clients, the frontend and the number
// those of IDs and Endpoints. An IPv6 endpoint ends in the last of 16 registers.
func (e *encoder) translate(a tables.Translate) error {
	client := uint32(reg32)
	frontend := client
	if a.Clients != "" {
		e.address(a.Family, tables.Source)
		frontend += words(a.Family)
	}
	number, err := e.key(a.Family, a.Frontend, frontend)
	if err != nil {
		return err
	}
	endpoint := number + 1
	switch {
	case a.Recall:
		e.lookupFrom(register(client), a.Clients, register(endpoint))
		e.move(register(endpoint), register(number), register(endpoint+1))
	default:
		e.random(register(number), a.Count, a.First)
		if a.IDs != "" {
			e.lookupFrom(register(frontend), a.IDs, register(endpoint))
			e.move(register(endpoint), register(number), register(endpoint+1))
		}
	}
	e.lookupFrom(register(frontend), a.Endpoints, register(endpoint))
	if a.Clients != "" {
		if !a.Recall {
			// An entry that leads to a former endpoint is in the way: an update leaves the value as it is.
			e.dynamic(dynsetDelete, a, register(client), register(number))
		}
		e.dynamic(unix.NFT_DYNSET_OP_UPDATE, a, register(client), register(number))
	}
	e.setConnMark(tables.SetConnMark{Value: a.ConnMark, Mask: a.ConnMark})
	e.destinationNAT(a.Family, register(endpoint), register(endpoint+words(a.Family)))
	return nil
}

// move copies a number by the mark of the packet, which gets its own value back: nft 1.0.6 aborts when it lists a rule that has the
// value of a map in a concatenation (see grant). Nothing between can end the rule.
func (m *Message) move(from, to, saved uint32) {
	m.meta(unix.NFT_META_MARK, saved)
	m.setMeta(unix.NFT_META_MARK, from)
	m.meta(unix.NFT_META_MARK, to)
	m.setMeta(unix.NFT_META_MARK, saved)
}

// dynsetDelete is NFT_DYNSET_OP_DELETE (Linux 5.5).
const dynsetDelete = 2

// dynamic changes the entry of the key in a dynamic map.
func (m *Message) dynamic(operation uint32, a tables.Translate, key, value uint32) {
	element, data := m.expression("dynset")
	m.Text(unix.NFTA_DYNSET_SET_NAME, a.Clients)
	m.Uint32(unix.NFTA_DYNSET_OP, operation)
	m.Uint32(unix.NFTA_DYNSET_SREG_KEY, key)
	timeout := a.Timeout
	if operation == dynsetDelete {
		timeout = 0
	}
	// A deletion looks at neither, but the kernel wants the value, and returns the timeout.
	m.Uint32(unix.NFTA_DYNSET_SREG_DATA, value)
	m.Uint64(unix.NFTA_DYNSET_TIMEOUT, uint64(timeout.Milliseconds()))
	m.endExpression(element, data)
}

// random loads a random number from first to first+count-1.
func (m *Message) random(to, count, first uint32) {
	element, data := m.expression("numgen")
	m.Uint32(unix.NFTA_NG_DREG, to)
	m.Uint32(unix.NFTA_NG_MODULUS, count)
	m.Uint32(unix.NFTA_NG_TYPE, unix.NFT_NG_RANDOM)
	m.Uint32(unix.NFTA_NG_OFFSET, first)
	m.endExpression(element, data)
}

// destinationNAT binds the destination to an address and a port in registers.
func (m *Message) destinationNAT(f model.Family, address, port uint32) {
	family := uint32(unix.NFPROTO_IPV4)
	if f == model.IPv6 {
		family = unix.NFPROTO_IPV6
	}
	element, data := m.expression("nat")
	m.Uint32(unix.NFTA_NAT_TYPE, unix.NFT_NAT_DNAT)
	m.Uint32(unix.NFTA_NAT_FAMILY, family)
	m.Uint32(unix.NFTA_NAT_REG_ADDR_MIN, address)
	m.Uint32(unix.NFTA_NAT_REG_ADDR_MAX, address)
	m.Uint32(unix.NFTA_NAT_REG_PROTO_MIN, port)
	m.Uint32(unix.NFTA_NAT_REG_PROTO_MAX, port)
	m.Uint32(unix.NFTA_NAT_FLAGS, natRangeMapIPs|natRangeProtoSpecified)
	m.endExpression(element, data)
}

// natRangeProtoSpecified is NF_NAT_RANGE_PROTO_SPECIFIED of linux/netfilter/nf_nat.h.
const natRangeProtoSpecified = 2
