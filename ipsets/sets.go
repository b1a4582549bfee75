// Package ipsets holds the contract for sets of addresses, networks and
// address-port triples that rules refer to by name.
//
// Two kinds of drivers fulfil it: tables/nftables, which programs its sets in
// the same transaction as its rules, and the kernel's ipset for the iptables
// backend. The package knows nothing of policy.
package ipsets

import (
	"crypto/sha256"
	"encoding/base64"
	"fmt"

	"github.com/felixlike/felixlike/model"
)

// Set names one set of one family. Its kind decides the kernel type:
//
//	Addresses     nft ipv4_addr              ipset hash:ip
//	Networks      nft ipv4_addr, interval    ipset hash:net
//	AddressPorts  nft ipv4_addr . inet_proto . inet_service   ipset hash:ip,port
//	Loops         nft ipv4_addr . ipv4_addr
//	Senders       nft ether_addr . ipv4_addr, interval
type Set struct {
	Name   string
	Kind   model.GroupKind
	Family model.Family
	// Group is the group of the members, if they are those of one.
	Group model.GroupID
}

// Sets is the part of a set driver that managers use. The setters only record the
// desired state; the driver's Apply programs it. A set exists before the first rule
// that names it, and until the last such rule is gone.
type Sets interface {
	// CreateSet wants the set to exist; it is empty until members come.
	CreateSet(Set)
	// AddMembers wants the members, which must be of the set's family. A
	// member that is wanted already is no error.
	AddMembers(name string, members []model.Member)
	// RemoveMembers no longer wants the members. One that is not wanted is no
	// error.
	RemoveMembers(name string, members []model.Member)
	// RemoveSet no longer wants the set. Rules that name it must go in the
	// same apply.
	RemoveSet(name string)
}

// Name returns the name of the set that holds one family of a group.
func Name(group model.GroupID, family model.Family) string {
	return fmt.Sprintf("%s-%s", group, family)
}

// KernelPrefix begins the names of all of our sets in the kernel's ipset. The other
// programs in the network namespace share these names with us.
const KernelPrefix = "flx-"

// maxKernelName is one less than the length of a set's name that the kernel takes
// (IPSET_MAXNAMELEN with the terminating zero): the driver needs a second name for
// each set.
const maxKernelName = 30

// KernelName returns the name of a set in the kernel's ipset: the prefix and the
// set's name. It cuts a long name and appends a hash. No name of a group or of rules
// is that long.
func KernelName(set string) string {
	if len(KernelPrefix)+len(set) <= maxKernelName {
		return KernelPrefix + set
	}
	sum := sha256.Sum256([]byte(set))
	hash := base64.RawURLEncoding.EncodeToString(sum[:])[:kernelHashLength]
	return KernelPrefix + set[:maxKernelName-len(KernelPrefix)-1-len(hash)] + "-" + hash
}

// kernelHashLength is the number of base64 characters (132 bits) that keep cut
// names apart.
const kernelHashLength = 22
