package cni

import (
	"bytes"
	"context"
	"fmt"

	"github.com/felixlike/felixlike/model"
)

// unclaimed returns an error if another pod has the interface name or the MAC
// address. Both are hashes of a pod's name, which tenants choose: whoever searches
// long enough finds a name with the hash of somebody else's pod. That one keeps what
// it has.
//
// An interface that nobody has recorded is no claim: it is not on the bridge, and
// whoever was adding it has ended.
func (a *Attacher) unclaimed(ctx context.Context, s Spec) error {
	all, err := a.db.Attachments(ctx)
	if err != nil && all == nil {
		return err
	}
	// Whose interface it is can be read of every record.
	for _, other := range all {
		if err := conflict(s, other); err != nil {
			return err
		}
	}
	return nil
}

func conflict(s Spec, other model.Attachment) error {
	const hint = "the names of the two pods have the same hash: give pod %s another name"
	switch {
	case other.Pod == s.Pod:
		return nil
	case other.Interface == s.HostInterface:
		return fmt.Errorf("interface %s belongs to pod %s; "+hint, s.HostInterface, other.Pod, s.Pod)
	case bytes.Equal(other.MAC, s.MAC):
		return fmt.Errorf("MAC address %s of interface %s belongs to pod %s (interface %s); "+hint,
			s.MAC, s.HostInterface, other.Pod, other.Interface, s.Pod)
	}
	return nil
}
