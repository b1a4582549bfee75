package nfnetlink

import (
	"encoding/binary"
	"errors"
	"iter"

	"golang.org/x/sys/unix"
)

// genHeader is the size of struct nfgenmsg.
const genHeader = 4

// Attributes iterates over the netlink attributes in b, without the flags in
// their types. It ends at the first malformed one.
func Attributes(b []byte) iter.Seq2[uint16, []byte] {
	return func(yield func(uint16, []byte) bool) {
		for len(b) >= unix.NLA_HDRLEN {
			size := int(binary.NativeEndian.Uint16(b))
			if size < unix.NLA_HDRLEN || size > len(b) {
				return
			}
			kind := binary.NativeEndian.Uint16(b[2:]) &^ (unix.NLA_F_NESTED | unix.NLA_F_NET_BYTEORDER)
			if !yield(kind, b[unix.NLA_HDRLEN:size]) {
				return
			}
			b = b[min(len(b), Align(size)):]
		}
	}
}

// reply is one message from the kernel.
type reply struct {
	kind, flags uint16
	sequence    uint32
	payload     []byte
}

// replies iterates over the messages in b. A malformed message is an error and ends
// the iteration.
func replies(b []byte) iter.Seq2[reply, error] {
	return func(yield func(reply, error) bool) {
		for len(b) >= unix.NLMSG_HDRLEN {
			size := int(binary.NativeEndian.Uint32(b))
			if size < unix.NLMSG_HDRLEN || size > len(b) {
				yield(reply{}, errMalformed)
				return
			}
			r := reply{
				kind: binary.NativeEndian.Uint16(b[4:]), flags: binary.NativeEndian.Uint16(b[6:]),
				sequence: binary.NativeEndian.Uint32(b[8:]), payload: b[unix.NLMSG_HDRLEN:size],
			}
			if !yield(r, nil) {
				return
			}
			b = b[min(len(b), Align(size)):]
		}
	}
}

var errMalformed = errors.New("malformed netlink message")

// outcome returns the error number in an answer (zero: success), and the
// attributes of the request as the kernel returns them with an error.
func (r reply) outcome() (unix.Errno, []byte) {
	if len(r.payload) < 4 {
		return 0, nil
	}
	code := unix.Errno(-int32(binary.NativeEndian.Uint32(r.payload)))
	request := r.payload[4:]
	if len(request) < unix.NLMSG_HDRLEN+genHeader {
		return code, nil
	}
	return code, request[unix.NLMSG_HDRLEN+genHeader:]
}

// Align rounds up to the 4 bytes on which messages and attributes begin.
func Align(n int) int { return (n + 3) &^ 3 }
