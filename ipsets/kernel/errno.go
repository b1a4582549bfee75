package kernel

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// The errors of ipset's own (uapi/linux/netfilter/ipset/ip_set.h).
const (
	errMaxSets      unix.Errno = 4099
	errBusy         unix.Errno = 4100
	errExistName2   unix.Errno = 4101
	errTypeMismatch unix.Errno = 4102
	errExist        unix.Errno = 4103
	errReferenced   unix.Errno = 4108
	errHashFull     unix.Errno = 4352
)

// errorOf returns an error for a number, with the words for ipset's own.
func errorOf(code unix.Errno) error {
	if code < 4096 {
		return code
	}
	words, ok := map[unix.Errno]string{
		4097: "invalid protocol", 4098: "the kernel has no such set type", errMaxSets: "no room for more sets",
		errBusy: "the set is in use", errExistName2: "a set of that name exists", errTypeMismatch: "the sets are of different types",
		errExist: "it exists already", 4104: "invalid prefix length", 4105: "invalid netmask", 4106: "invalid family",
		4107: "timeouts are not supported", errReferenced: "the set is in use", 4109: "an IPv4 address is needed",
		4110: "an IPv6 address is needed", errHashFull: "the set is full", 4353: "the null element cannot be stored",
		4354: "invalid protocol of the element", 4355: "the protocol of the element is missing",
	}[code]
	if !ok {
		return fmt.Errorf("ipset error %d", int(code))
	}
	return fmt.Errorf("%s (ipset error %d)", words, int(code))
}

// foreign reports whether an error says that another program has changed the known
// state of a set.
func foreign(code unix.Errno) bool {
	return code == unix.ENOENT || code == unix.EEXIST || code == errExist || code == errHashFull
}

// refersTo reports whether an error says that something refers to a set.
func refersTo(code unix.Errno) bool {
	return code == errBusy || code == errReferenced || code == unix.EBUSY
}
