package openflow

import "github.com/felixlike/felixlike/model"

// Masked is the numbers of 16 bits whose bits under the mask are the value's.
type Masked struct{ Value, Mask uint16 }

// Masks returns the fewest masks that cover a range, in order; none if last comes before first.
func Masks(first, last uint16) []Masked {
	var all []Masked
	for at, end := int(first), int(last); at <= end; {
		size := 1
		// The largest block that begins at at and ends in the range.
		for at%(size*2) == 0 && at+size*2-1 <= end && size < 1<<16 {
			size *= 2
		}
		all = append(all, Masked{uint16(at), uint16(1<<16 - size)})
		at += size
	}
	return all
}

// SourcePort is the field of a transport protocol's source port: TCP's if it is neither UDP nor SCTP.
func SourcePort(p model.Protocol) Field {
	switch p {
	case model.UDP:
		return UDPSrc
	case model.SCTP:
		return SCTPSrc
	}
	return TCPSrc
}

// DestinationPort is SourcePort for the destination.
func DestinationPort(p model.Protocol) Field {
	switch p {
	case model.UDP:
		return UDPDst
	case model.SCTP:
		return SCTPDst
	}
	return TCPDst
}
