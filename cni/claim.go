package cni

import (
	"bytes"
	"context"
	"fmt"

	"github.com/felixlike/felixlike/model"
)

// claim returns the spec with a MAC address that no other pod has, and an error if
// another pod has the interface name. Both are hashes of a pod's name, which tenants
// choose: whoever searches long enough finds a name with the hash of somebody else's pod.
// That one keeps what it has. A MAC address that is taken is replaced by the next of this
// pod's; the database keeps which, so a restart of the agent changes none.
//
// An interface that nobody has recorded is no claim: it is not on the bridge, and
// whoever was adding it has ended.
func (a *Attacher) claim(ctx context.Context, s Spec) (Spec, error) {
	all, err := a.db.Attachments(ctx)
	if err != nil && all == nil {
		return s, err
	}
	// Whose interface it is can be read of every record.
	taken := map[string]model.Attachment{}
	for _, other := range all {
		switch {
		case other.Pod != s.Pod && other.Interface == s.HostInterface:
			return s, fmt.Errorf("interface %s belongs to pod %s; the names of the two pods have the same hash: give pod %s another name",
				s.HostInterface, other.Pod, s.Pod)
		case other.Pod != s.Pod:
			taken[other.MAC.String()] = other
		case other.Sandbox == s.Owner && len(other.MAC) > 0 && ownMAC(s):
			s.MAC = other.MAC
		}
	}
	for n := 1; ; n++ {
		other, conflict := taken[s.MAC.String()]
		if !conflict {
			return s, nil
		}
		if n > len(all) {
			return s, fmt.Errorf("MAC address %s belongs to pod %s (interface %s)", s.MAC, other.Pod, other.Interface)
		}
		s.MAC = macOfTry(s.Pod, n)
	}
}

// ownMAC reports whether the address was made from the pod's name.
func ownMAC(s Spec) bool { return bytes.Equal(s.MAC, MAC(s.Pod)) }
