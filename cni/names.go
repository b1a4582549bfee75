package cni

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net"
	"strings"

	"github.com/felixlike/felixlike/model"
)

const (
	// readableLen is how much of the pod's name an interface name carries;
	// with the prefix, the hyphen and the hash it fills the 15 characters that
	// Linux allows (IFNAMSIZ is 16 with the terminating zero).
	readableLen = 3
	hashLen     = 8
)

// HostInterface returns the name of the host side of a pod's veth pair: the
// prefix by which the node's firewall knows pods' interfaces, the beginning of
// the pod's name, and a hash of namespace and name.
func HostInterface(pod model.PodID) string {
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
	return model.PodInterfacePrefix + b.String() + "-" + hex.EncodeToString(sum[:])[:hashLen]
}

// MAC returns the hardware address that a pod's interface has unless another pod has
// it: a locally administered unicast address made from a hash of namespace and name, so
// that a pod which is attached again keeps it and neighbours need not be flushed.
func MAC(pod model.PodID) net.HardwareAddr { return macOfTry(pod, 0) }

// macOfTry returns the next address to try after n collisions: a hash of 46 bits is not
// unique.
func macOfTry(pod model.PodID, n int) net.HardwareAddr {
	text := "mac:" + pod.String()
	if n > 0 {
		text = fmt.Sprintf("mac %d:%s", n, pod)
	}
	sum := sha256.Sum256([]byte(text))
	mac := net.HardwareAddr(sum[:6])
	mac[0] = mac[0]&^0x01 | 0x02
	return mac
}
