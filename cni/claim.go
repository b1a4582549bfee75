package cni

import (
	"context"
	"fmt"
	"net"
	"slices"
	"sync"

	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/ovsfwd/pipeline"
)

// orphanTries is the number of names of a pod's sequence at which the agent looks for an
// orphan: an interface that a killed agent made but did not record. The kernel removes
// orphans with later names when the pod's namespace ends.
const orphanTries = 8

// claims has the interface names and MAC addresses of pods that the agent is attaching or
// detaching. The database has those of all other pods.
type claims struct {
	mu         sync.Mutex
	interfaces map[string]model.PodID
	macs       map[string]model.PodID
}

// take claims an interface name unless another pod has claimed it. Calls for one pod
// must not overlap.
func (c *claims) take(name string, pod model.PodID) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if owner, taken := c.interfaces[name]; taken && owner != pod {
		return false
	}
	c.add(name, nil, pod)
	return true
}

func (c *claims) add(name string, mac net.HardwareAddr, pod model.PodID) {
	if c.interfaces == nil {
		c.interfaces, c.macs = map[string]model.PodID{}, map[string]model.PodID{}
	}
	c.interfaces[name] = pod
	if mac != nil {
		c.macs[mac.String()] = pod
	}
}

func (c *claims) release(name string, mac net.HardwareAddr) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.interfaces, name)
	delete(c.macs, mac.String())
}

// claim returns the spec with an interface name and a MAC address that no other pod
// has, and claims both until release is called. Both are hashes of the pod's name. A
// tenant chooses that name, and can search for one that collides with another pod's.
// The other pod keeps its interface and address; the new pod gets the next ones of its
// own sequence. The database records them, so a restart of the agent keeps them.
//
// An interface without record and claim is not on the bridge: its agent ended while it
// added the interface.
func (a *Attacher) claim(ctx context.Context, s Spec) (_ Spec, release func(), err error) {
	orphan := a.orphan(s)
	a.claims.mu.Lock()
	defer a.claims.mu.Unlock()
	// Under the lock: a pod is always in the records or among the claims.
	all, err := a.db.Attachments(ctx)
	if err != nil && all == nil {
		return s, nil, err
	}
	ports, err := a.db.PortMACs(ctx)
	if err != nil {
		return s, nil, err
	}
	// The pod and interface name can be read from every record, also from a damaged one.
	interfaces, macs := map[string]string{}, map[string]string{pipeline.VirtualMAC().String(): "the gateways of other nodes"}
	for port, mac := range ports {
		macs[mac] = "port " + port
	}
	var own model.Attachment
	for _, other := range all {
		switch {
		case other.Pod != s.Pod:
			interfaces[other.Interface], macs[other.MAC.String()] = "pod "+other.Pod.String(), "pod "+other.Pod.String()
		case own.Interface == "" || other.Sandbox == s.Owner:
			own = other
		}
	}
	for name, pod := range a.claims.interfaces {
		interfaces[name] = "pod " + pod.String()
	}
	for mac, pod := range a.claims.macs {
		macs[mac] = "pod " + pod.String()
	}
	if err := a.nameInterface(&s, interfaces, own.Interface, orphan); err != nil {
		return s, nil, err
	}
	if own.Sandbox != s.Owner {
		own.MAC = nil
	}
	a.nameMAC(&s, macs, own.MAC)
	a.claims.add(s.HostInterface, s.MAC, s.Pod)
	return s, func() { a.claims.release(s.HostInterface, s.MAC) }, nil
}

// nameInterface chooses the pod's interface name: the recorded one, that of an orphan,
// or the first that is free.
func (a *Attacher) nameInterface(s *Spec, taken map[string]string, recorded, orphan string) error {
	if s.HostInterface != "" {
		if other, conflict := taken[s.HostInterface]; conflict {
			return fmt.Errorf("interface %s belongs to %s", s.HostInterface, other)
		}
		return nil
	}
	for _, name := range []string{recorded, orphan} {
		if _, conflict := taken[name]; name != "" && !conflict {
			s.HostInterface = name
			return nil
		}
	}
	for n := 0; ; n++ {
		s.HostInterface = a.names.hostInterface(s.Pod, n)
		if _, conflict := taken[s.HostInterface]; !conflict {
			return nil
		}
	}
}

// nameMAC chooses the pod's MAC address: the given one, the one recorded for the same
// sandbox, or the first that is free.
func (a *Attacher) nameMAC(s *Spec, taken map[string]string, recorded net.HardwareAddr) {
	if len(s.MAC) == 0 {
		s.MAC = recorded
	}
	for n := 0; ; n++ {
		if _, conflict := taken[s.MAC.String()]; len(s.MAC) > 0 && !conflict {
			return
		}
		s.MAC = a.names.mac(s.Pod, n)
	}
}

// orphan returns the name of an interface that was made for this owner but not recorded.
func (a *Attacher) orphan(s Spec) string {
	for n := range orphanTries {
		name := a.names.hostInterface(s.Pod, n)
		if alias, err := aliasOf(name); err == nil && alias == s.alias() {
			return name
		}
	}
	return ""
}

// interfacesOf returns the names that the interface of this pod may have. It returns names
// even with an error, because a name is enough to remove an interface.
func (a *Attacher) interfacesOf(ctx context.Context, s Spec) ([]string, error) {
	if s.HostInterface != "" {
		return []string{s.HostInterface}, nil
	}
	names := []string{a.names.hostInterface(s.Pod, 0)}
	if orphan := a.orphan(s); orphan != "" {
		names = append(names, orphan)
	}
	all, err := a.db.Attachments(ctx)
	if all != nil {
		err = nil // even a damaged record names its interface and pod
	}
	for _, other := range all {
		if other.Pod == s.Pod {
			names = append(names, other.Interface)
		}
	}
	slices.Sort(names)
	return slices.Compact(names), err
}

// Attached returns the record of a sandbox's interface, or nil. It returns a damaged record
// together with the error.
func (a *Attacher) Attached(ctx context.Context, s Spec) (*model.Attachment, error) {
	all, err := a.db.Attachments(ctx)
	if err != nil && all == nil {
		return nil, err
	}
	at := slices.IndexFunc(all, func(other model.Attachment) bool { return other.Pod == s.Pod && other.Sandbox == s.Owner })
	if at < 0 {
		return nil, nil
	}
	return a.db.Attachment(ctx, all[at].Interface)
}
