package cni

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"

	"github.com/felixlike/felixlike/model"
)

// Spec describes the pod's interface to attach, and the bridge.
type Spec struct {
	Pod model.PodID
	// Owner names the sandbox (a container id). A Detach for an owner that another
	// one has replaced changes nothing.
	Owner string
	// NetNS is the path of the pod's network namespace. Detach does not need it.
	NetNS string
	// Interface is the pod's side, usually "eth0".
	Interface string
	// HostInterface and MAC may be empty. Then Attach derives them from the pod's name and
	// avoids those of other pods.
	HostInterface string
	MAC           net.HardwareAddr
	// Addresses are the pod's addresses, Gateways the next hops of its default routes, one a family. A pod has no other
	// neighbour than these.
	Addresses []netip.Addr
	Gateways  []netip.Addr
	// MTU of both sides; the kernel's default if zero.
	MTU int
	// Bridge is the bridge to join, OVSDB the path of the socket of the
	// database that has it. An Attacher has its own.
	Bridge, OVSDB string
}

// check refuses a Spec that cannot describe a pod's interface.
func (s Spec) check() error {
	switch {
	case s.Pod.Namespace == "" || s.Pod.Name == "":
		return errors.New("pod has no namespace or no name")
	case s.Owner == "" || len(s.Owner) > maxOwner:
		return fmt.Errorf("owner %q: must have 1 to %d characters", s.Owner, maxOwner)
	case s.Interface == "":
		return errors.New("no name for the interface inside")
	case len(s.HostInterface) > maxInterface || len(s.Interface) > maxInterface:
		return fmt.Errorf("interface names %q, %q: at most %d characters", s.HostInterface, s.Interface, maxInterface)
	}
	return nil
}

const (
	maxInterface = 15
	// maxOwner keeps the interface's alias below IFALIASZ (256); container
	// ids have 64 characters.
	maxOwner = 200
)

// aliasPrefix begins the alias of the host side.
const aliasPrefix = "felixlike:"

// alias marks the host side as this owner's. A later Detach reads it to see whether
// the interface still belongs to its sandbox.
func (s Spec) alias() string { return s.aliasOfOwner() + s.Interface }

// aliasOfOwner begins the aliases of all interfaces of this owner.
func (s Spec) aliasOfOwner() string { return aliasPrefix + s.Owner + "/" }

// attachment returns the attachment as the agent will read it from OVSDB.
func (s Spec) attachment(ofport uint32) *model.Attachment {
	a := &model.Attachment{
		Pod: s.Pod, Sandbox: s.Owner, PodInterface: s.Interface, NetNS: s.NetNS,
		Interface: s.HostInterface, OFPort: ofport, MAC: s.MAC,
	}
	a.Addresses = slices.SortedFunc(slices.Values(s.Addresses), netip.Addr.Compare)
	return a
}
