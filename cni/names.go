package cni

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"net"
	"strings"

	"github.com/felixlike/felixlike/model"
)

// readableLen is how much of the pod's name an interface name carries; with the prefix,
// the hyphen and the hash it fills the 15 characters that Linux allows (IFNAMSIZ is 16
// with the terminating zero).
const readableLen = 3

// HostInterface returns the name that the host side of a pod's veth pair has unless
// another pod has it: the prefix by which the node's firewall knows pods' interfaces,
// the beginning of the pod's name, and a hash of namespace and name.
func HostInterface(pod model.PodID) string { return naming{}.hostInterface(pod, 0) }

// MAC returns the hardware address that a pod's interface has unless another pod has
// it: a locally administered unicast address from a hash of namespace and name. A pod
// that is attached again keeps it, so neighbour entries stay valid.
func MAC(pod model.PodID) net.HardwareAddr { return naming{}.mac(pod, 0) }

// naming makes names of hashes of a pod's identity. Interface names have 32 bits of
// hash, MAC addresses 46, so neither is unique. Each pod has a sequence of names: the
// hash, and the numbers that follow it. No two names of a sequence are equal, so among
// n pods one of the first n is free.
type naming struct {
	// bits is the width to which a test shortens the hashes, or zero.
	bits uint
}

func (n naming) cut(hash uint64) uint64 {
	if n.bits == 0 {
		return hash
	}
	return hash & (1<<n.bits - 1)
}

// hostInterface returns the interface name to try after this number of collisions.
func (n naming) hostInterface(pod model.PodID, collisions int) string {
	sum := sha256.Sum256([]byte(pod.String()))
	var b strings.Builder
	for _, r := range pod.Name {
		if b.Len() == readableLen {
			break
		}
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' {
			b.WriteRune(r)
		}
	}
	hash := n.cut(uint64(binary.BigEndian.Uint32(sum[:4])))
	return fmt.Sprintf("%s%s-%08x", model.PodInterfacePrefix, b.String(), uint32(hash)+uint32(collisions))
}

// mac returns the MAC address to try after this number of collisions.
func (n naming) mac(pod model.PodID, collisions int) net.HardwareAddr {
	sum := sha256.Sum256([]byte("mac:" + pod.String()))
	var number [8]byte
	binary.BigEndian.PutUint64(number[:], n.cut(binary.BigEndian.Uint64(sum[:8])>>16)+uint64(collisions))
	mac := net.HardwareAddr(number[2:])
	mac[0] = mac[0]&^0x01 | 0x02
	return mac
}
