package cni

import (
	"bytes"
	"context"
	"fmt"

	"github.com/felixlike/felixlike/model"
)

// claim returns the spec with a MAC address that no other pod has, and an error if
// another pod has the interface name. Both are hashes of the pod's name. Tenants choose
// that name, so a tenant can search for one that collides with another pod's. The other
// pod keeps its interface and address; the new pod gets the next MAC address of its own
// sequence. The database records the address, so a restart of the agent keeps it.
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
