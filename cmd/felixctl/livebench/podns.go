package livebench

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"

	"github.com/vishvananda/netlink"

	"github.com/felixlike/felixlike/internal/namespace"
)

// podNamespace finds the network namespace that has an address, among the named
// ones of this machine: container runtimes name those of pods.
func podNamespace(address netip.Addr) (*namespace.Namespace, error) {
	entries, err := os.ReadDir(namespace.Dir)
	if err != nil {
		return nil, fmt.Errorf("network namespaces: %w", err)
	}
	for _, e := range entries {
		ns, err := namespace.At(filepath.Join(namespace.Dir, e.Name()))
		if err != nil {
			continue // it has ended meanwhile, or is none
		}
		var found bool
		err = ns.Do(func() (err error) {
			found, err = hasAddress(address)
			return err
		})
		if err == nil && found {
			return ns, nil
		}
		ns.Close()
	}
	return nil, fmt.Errorf("no network namespace in %s has the address %s: is the pod on this node?", namespace.Dir, address)
}

// podInterface is the interface that container runtimes give to pods.
const podInterface = "eth0"

// hasAddress reports whether the pod's interface in the namespace of the calling
// thread has the address.
func hasAddress(address netip.Addr) (bool, error) {
	link, err := netlink.LinkByName(podInterface)
	if err != nil {
		return false, err
	}
	addresses, err := netlink.AddrList(link, netlink.FAMILY_ALL)
	if err != nil {
		return false, err
	}
	for _, a := range addresses {
		if got, ok := netip.AddrFromSlice(a.IP); ok && got.Unmap() == address {
			return true, nil
		}
	}
	return false, nil
}
