package tables

import (
	"errors"
	"fmt"
	"time"

	"github.com/felixlike/felixlike/model"
)

// Field is a part of a concatenated key. Each field takes whole registers of 4 bytes in the kernel.
type Field uint8

// The fields.
const (
	SourceAddress Field = iota + 1
	DestinationAddress
	// UnspecifiedAddress is 0.0.0.0 or ::, whatever the packet has: the key of what holds for several addresses.
	UnspecifiedAddress
	TransportProtocol
	DestinationPort
)

var fieldNames = [...]string{SourceAddress: "saddr", DestinationAddress: "daddr", UnspecifiedAddress: "unspecified", TransportProtocol: "l4proto", DestinationPort: "dport"}

// String returns nft's name of the field.
func (f Field) String() string {
	if int(f) < len(fieldNames) && fieldNames[f] != "" {
		return fieldNames[f]
	}
	return fmt.Sprintf("field(%d)", uint8(f))
}

// Key is a concatenation of fields of a packet of one family.
type Key []Field

// The keys of frontends of Services: by the address that the client uses, and for all addresses of the node.
var (
	AddressFrontend = Key{DestinationAddress, TransportProtocol, DestinationPort}
	AnyFrontend     = Key{UnspecifiedAddress, TransportProtocol, DestinationPort}
)

func (k Key) appendTo(b []byte) []byte {
	for i, f := range k {
		if i > 0 {
			b = append(b, " . "...)
		}
		b = append(b, f.String()...)
	}
	return b
}

func (k Key) check() error {
	if len(k) == 0 || len(k) > maxFields {
		return fmt.Errorf("a key has 1 to %d fields, not %d", maxFields, len(k))
	}
	for _, f := range k {
		if int(f) >= len(fieldNames) || f == 0 {
			return fmt.Errorf("unknown field %s", f)
		}
	}
	return nil
}

// maxFields bounds the fields of a key: two IPv6 addresses, protocol and port fit the kernel's 16 registers of 4 bytes.
const maxFields = 4

// MatchKey looks a concatenation up in a set of large tables (package maps). Ports need a protocol that has them. Drivers of
// iptables refuse it.
type MatchKey struct {
	Family  model.Family
	Key     Key
	Set     string
	Negated bool
}

func (MatchKey) isMatch() {}

// String renders the match.
func (m MatchKey) String() string { return text(m) }

func (m MatchKey) appendTo(b []byte) []byte {
	b = m.Key.appendTo(append(append(append(b, "ip"...), m.Family.String()...), ' '))
	if m.Negated {
		b = append(b, " !="...)
	}
	return append(append(b, " @"...), m.Set...)
}

// DispatchKey looks up the number that a map has for a frontend and a slot, and carries out the verdict that a second map has for the
// number. Without one the packet goes on to the next rule. The number stands in place of an address: the map is that of Translate, so
// a change of the endpoints of a frontend is one of this map alone.
//
// A map of verdicts by frontends would do, but after each new element that leads to a chain the kernel validates the table, and walks
// all elements of all maps of verdicts, once for each way to them (nft_lookup_validate): 40 ms of processor time at 30,000 elements.
type DispatchKey struct {
	Family    model.Family
	Frontend  Key
	Endpoints string
	Slot      uint32
	Map       string
}

func (DispatchKey) isAction() {}

// String renders the action.
func (a DispatchKey) String() string { return text(a) }

func (a DispatchKey) appendTo(b []byte) []byte {
	b = a.Frontend.appendTo(append(append(append(b, "ip"...), a.Family.String()...), ' '))
	return fmt.Appendf(b, " . 0x%08x map @%s vmap @%s", a.Slot, a.Endpoints, a.Map)
}

// Translate gives the packet's connection a destination of those that a map has for its frontend (DNAT), and sets ConnMark in the
// mark of the connection. The map leads from a frontend and a number to an address and a port. Without one the packet goes on to the
// next rule.
type Translate struct {
	Family model.Family
	// Frontend is AddressFrontend or AnyFrontend.
	Frontend Key
	// Endpoints is the map. The number is drawn from First to First+Count-1.
	Endpoints    string
	First, Count uint32
	ConnMark     uint32
	// IDs, if not empty, is a map from the frontend and the drawn number to the one that Endpoints has, in place of an address: an
	// endpoint keeps it while others come and go. It may be the same map.
	IDs string
	// Clients, if not empty, is the dynamic map of clients and frontends to such numbers. Each new connection gives its entry
	// Timeout again.
	Clients string
	Timeout time.Duration
	// Recall makes the rule one that takes the number from Clients, and draws none. A number that Endpoints does not have any more
	// leads nowhere.
	Recall bool
}

func (Translate) isAction() {}

// String renders the action.
func (a Translate) String() string { return text(a) }

func (a Translate) appendTo(b []byte) []byte {
	b = a.Frontend.appendTo(append(append(append(b, "dnat ip"...), a.Family.String()...), ' '))
	if a.Recall {
		b = fmt.Appendf(b, " . (saddr map @%s)", a.Clients)
	} else {
		b = fmt.Appendf(b, " . random mod %d offset %d", a.Count, a.First)
	}
	if a.IDs != "" {
		b = fmt.Appendf(b, " map @%s", a.IDs)
	}
	b = fmt.Appendf(b, " map @%s", a.Endpoints)
	if a.Clients != "" {
		b = fmt.Appendf(b, ", in @%s for %s", a.Clients, a.Timeout)
	}
	return fmt.Appendf(b, ", ct mark or 0x%08x", a.ConnMark)
}

func (a Translate) check() error {
	switch {
	case len(a.Frontend) != len(AddressFrontend):
		return errors.New("a frontend is an address, a protocol and a port")
	case a.Endpoints == "" || (a.Count == 0) != a.Recall:
		return errors.New("an endpoint is either drawn or recalled")
	case (a.Clients == "") != (a.Timeout == 0) || a.Recall && a.Clients == "":
		return errors.New("clients are remembered in a map, for some time")
	}
	return errors.Join(a.Frontend.check(), checkMark(a.ConnMark, a.ConnMark))
}
