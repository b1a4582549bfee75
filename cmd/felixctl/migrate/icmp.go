package migrate

import (
	"errors"
	"fmt"
	"slices"

	"github.com/felixlike/felixlike/felixlike/antrea"
	"github.com/felixlike/felixlike/model"
)

// beginning returns the types of ICMP messages that begin something: valid_new in nf_conntrack_proto_icmp.c and
// nf_conntrack_proto_icmpv6.c of Linux. A rule judges no others: answers and errors pass with their connection, and
// connection tracking drops the rest (docs/explain/guarantees/antrea.md).
func beginning(family model.Family) []int32 {
	if family == model.IPv6 {
		return []int32{128, 139} // echo request, node information query
	}
	return []int32{8, 13, 15, 17} // echo, timestamp, information and address mask requests
}

// messages returns the messages of ICMP in IPv4, or of ICMPv6, that a rule judges: all without a type. In Antrea's rules a
// number stands for messages of both IP versions, so only types that begin something in this one are taken. For any other
// type the error is errBeginsNothing.
func messages(family model.Family, kind, code *int32) ([]antrea.ICMP, error) {
	types := beginning(family)
	switch {
	case kind == nil && code != nil:
		return nil, errors.New("a code of ICMP without a type has no counterpart")
	case code != nil && (*code < 0 || *code > 255):
		return nil, fmt.Errorf("ICMP code %d is not 0 to 255", *code)
	case kind != nil && (*kind < 0 || *kind > 255):
		return nil, fmt.Errorf("ICMP type %d is not 0 to 255", *kind)
	case kind != nil && !slices.Contains(types, *kind):
		return nil, errBeginsNothing
	case kind != nil:
		types = []int32{*kind}
	}
	var all []antrea.ICMP
	for _, t := range types {
		all = append(all, antrea.ICMP{Type: &t, Code: code})
	}
	return all, nil
}

// errBeginsNothing says that leaving a rule out changes no verdict: no rule judges the message that it names.
var errBeginsNothing = errors.New("a message of this type of ICMP begins nothing: felixlike lets it pass with the connection that it belongs to, and no rule allows or denies it")
