package cni

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/felixlike/felixlike/internal/ethtool"
	"github.com/felixlike/felixlike/internal/listing"
	"github.com/felixlike/felixlike/internal/namespace"
	"github.com/felixlike/felixlike/internal/sysctl"
	"github.com/felixlike/felixlike/model"
)

// hasVeth reports whether this owner already has a veth pair.
func hasVeth(s Spec, podNS *os.File) (bool, error) {
	alias, err := aliasOf(s.HostInterface)
	if err != nil {
		return false, err
	}
	if other, ours := strings.CutPrefix(alias, s.aliasOfOwner()); ours && other != s.Interface {
		return false, fmt.Errorf("the sandbox has the interface %s already, and a pod has only one", other)
	}
	if alias != s.alias() {
		return false, nil
	}
	return namespace.In(int(podNS.Fd()), func() error {
		_, err := netlink.LinkByName(s.Interface)
		return err
	}) == nil, nil
}

// makeVeth makes the veth pair, and replaces any interface with the host side's name.
func makeVeth(s Spec, podNS *os.File) error {
	if err := removeVeth(s.HostInterface); err != nil {
		return err
	}
	attrs := netlink.LinkAttrs{Name: s.HostInterface, MTU: s.MTU}
	veth := &netlink.Veth{
		LinkAttrs: attrs, PeerName: s.Interface, PeerHardwareAddr: s.MAC, PeerNamespace: netlink.NsFd(int(podNS.Fd())),
	}
	err := netlink.LinkAdd(veth)
	switch {
	case errors.Is(err, unix.EEXIST):
		// The name on the host is free: it was removed above.
		return fmt.Errorf("%w: it has an interface %s of another program", errSandbox, s.Interface)
	case err != nil:
		if kind, notOne := unix.IoctlRetInt(int(podNS.Fd()), unix.NS_GET_NSTYPE); notOne != nil || kind != unix.CLONE_NEWNET {
			return fmt.Errorf("%w: %s is no network namespace", errSandbox, podNS.Name())
		}
		return fmt.Errorf("add veth pair %s: %w", s.HostInterface, err)
	}
	return nil
}

// configureHost sets the host side up. It only carries frames to the bridge.
//
// A userspace datapath reads them from a packet socket, which leaves them to
// the host's IP stack as well. That must take none: a pod that learned or
// guessed the MAC address of the host side would be forwarded around
// spoofguard and policy. IPv6 can be turned off for an interface. IPv4 cannot,
// so the interface answers no ARP, forwards nothing, and takes no packet,
// since no route leads back by it. (The kernel sets forwarding anew on all
// interfaces when ip_forward changes, but not the rest.)
func configureHost(s Spec) error {
	link, err := netlink.LinkByName(s.HostInterface)
	if err != nil {
		return fmt.Errorf("host interface %s: %w", s.HostInterface, err)
	}
	if err := netlink.LinkSetAlias(link, s.alias()); err != nil {
		return fmt.Errorf("mark host interface %s: %w", s.HostInterface, err)
	}
	err = errors.Join(
		writeIPv6(s, s.HostInterface, "disable_ipv6", "1"),
		sysctl.Write("net/ipv4/conf/"+s.HostInterface+"/arp_ignore", "8"),
		sysctl.Write("net/ipv4/conf/"+s.HostInterface+"/rp_filter", "1"),
		sysctl.Write("net/ipv4/conf/"+s.HostInterface+"/forwarding", "0"),
	)
	if err != nil {
		return err
	}
	if err := netlink.LinkSetUp(link); err != nil {
		return fmt.Errorf("set host interface %s up: %w", s.HostInterface, err)
	}
	return nil
}

// configurePod is run in the pod's namespace. The gateway port has the MAC address. The bridge's datapath is in userspace
// or in the kernel.
func configurePod(s Spec, gatewayMAC net.HardwareAddr, userspace bool) error {
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return fmt.Errorf("loopback: %w", err)
	}
	link, err := netlink.LinkByName(s.Interface)
	if err != nil {
		return fmt.Errorf("interface %s: %w", s.Interface, err)
	}
	err = errors.Join(
		writeIPv6(s, s.Interface, "disable_ipv6", "0"),
		// IPAM gives no address to two pods.
		writeIPv6(s, s.Interface, "accept_dad", "0"),
		writeIPv6(s, s.Interface, "accept_ra", "0"),
		netlink.LinkSetUp(lo),
		setOffload(s.Interface, userspace),
		netlink.LinkSetHardwareAddr(link, s.MAC),
		netlink.LinkSetUp(link),
	)
	if err != nil {
		return fmt.Errorf("configure %s: %w", s.Interface, err)
	}
	have, err := addressesOf(link)
	if err != nil {
		return err
	}
	for _, a := range s.Addresses {
		if slices.ContainsFunc(have, func(h netip.Prefix) bool { return h.Addr() == a }) {
			continue // attached by an earlier version, with the node's prefix on link
		}
		if err := netlink.AddrReplace(link, &netlink.Addr{IPNet: ipNet(a), Flags: unix.IFA_F_NODAD}); err != nil {
			return fmt.Errorf("add address %s to %s: %w", a, s.Interface, err)
		}
	}
	for _, gateway := range s.Gateways {
		if !gateway.IsValid() {
			continue
		}
		if err := leadTo(link, gateway, gatewayMAC); err != nil {
			return err
		}
	}
	return nil
}

// leadTo makes the gateway the next hop of the pod, and its only neighbour. The entry is permanent: the pod asks nobody, and needs no
// room in the kernel's neighbour table, which all network namespaces share and which a pod could fill.
func leadTo(link netlink.Link, gateway netip.Addr, mac net.HardwareAddr) error {
	index := link.Attrs().Index
	err := netlink.NeighSet(&netlink.Neigh{
		LinkIndex: index, Family: family(gateway), State: netlink.NUD_PERMANENT, IP: gateway.AsSlice(), HardwareAddr: mac,
	})
	if err != nil {
		return fmt.Errorf("neighbour %s on %s: %w", gateway, link.Attrs().Name, err)
	}
	err = netlink.RouteReplace(&netlink.Route{LinkIndex: index, Dst: ipNet(gateway), Scope: netlink.SCOPE_LINK})
	if err != nil {
		return fmt.Errorf("route to %s: %w", gateway, err)
	}
	if err := netlink.RouteReplace(&netlink.Route{LinkIndex: index, Gw: gateway.AsSlice()}); err != nil {
		return fmt.Errorf("default route via %s: %w", gateway, err)
	}
	return nil
}

// addressesOf returns the addresses of an interface with their prefix lengths, in the namespace of the calling thread.
func addressesOf(link netlink.Link) ([]netip.Prefix, error) {
	have, err := listing.Whole(func() ([]netlink.Addr, error) { return netlink.AddrList(link, netlink.FAMILY_ALL) })
	if err != nil {
		return nil, fmt.Errorf("addresses of %s: %w", link.Attrs().Name, err)
	}
	var all []netip.Prefix
	for _, h := range have {
		if a, ok := netip.AddrFromSlice(h.IP); ok {
			ones, _ := h.Mask.Size()
			all = append(all, netip.PrefixFrom(a.Unmap(), ones))
		}
	}
	return all, nil
}

// writeIPv6 writes an IPv6 setting of an interface. A pod without an IPv6 address
// does without the setting where the kernel has no IPv6.
func writeIPv6(s Spec, iface, key, value string) error {
	err := sysctl.Write("net/ipv6/conf/"+iface+"/"+key, value)
	if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	at := slices.IndexFunc(s.Addresses, func(a netip.Addr) bool { return model.FamilyOf(a) == model.IPv6 })
	if at < 0 {
		return nil
	}
	return fmt.Errorf("address %s: the kernel has no IPv6 on %s: %w", s.Addresses[at], iface, err)
}

// aliasOf returns the alias of an interface, empty if there is no such interface.
func aliasOf(name string) (string, error) {
	link, err := netlink.LinkByName(name)
	if isNotFound(err) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("look for interface %s: %w", name, err)
	}
	return link.Attrs().Alias, nil
}

// removeVeth deletes the pair; it is no error if it is gone.
func removeVeth(name string) error {
	link, err := netlink.LinkByName(name)
	if err == nil {
		err = netlink.LinkDel(link)
	}
	if err != nil && !isNotFound(err) {
		return fmt.Errorf("delete interface %s: %w", name, err)
	}
	return nil
}

// ownedLink is the host side of a pair, and its owner.
type ownedLink struct {
	name string
	owner
}

// ownedLinks returns the host sides of pods' pairs, in the namespace of the
// calling thread.
func ownedLinks() ([]ownedLink, error) {
	links, err := listing.Whole(netlink.LinkList)
	if err != nil {
		return nil, fmt.Errorf("list interfaces: %w", err)
	}
	var all []ownedLink
	for _, l := range links {
		text, ours := strings.CutPrefix(l.Attrs().Alias, aliasPrefix)
		at := strings.LastIndexByte(text, '/')
		if ours && at >= 0 && strings.HasPrefix(l.Attrs().Name, model.PodInterfacePrefix) {
			all = append(all, ownedLink{name: l.Attrs().Name, owner: owner{text[:at], text[at+1:]}})
		}
	}
	return all, nil
}

// HostInterfaces returns the names of the host sides of pods' pairs, in the
// namespace of the calling thread.
func HostInterfaces() ([]string, error) {
	owned, err := ownedLinks()
	names := make([]string, len(owned))
	for i, l := range owned {
		names[i] = l.name
	}
	return names, err
}

// macOf returns the MAC address of an interface.
func macOf(name string) (string, error) {
	link, err := netlink.LinkByName(name)
	if err != nil {
		return "", fmt.Errorf("interface %s: %w", name, err)
	}
	return link.Attrs().HardwareAddr.String(), nil
}

func isNotFound(err error) bool {
	var missing netlink.LinkNotFoundError
	return errors.As(err, &missing) || errors.Is(err, unix.ENODEV)
}

// errOwnNamespace says that a pod is to be attached in the node's own namespace.
var errOwnNamespace = errors.New("it is the node's own")

// openNamespace opens a pod's network namespace, which must not be the calling
// thread's.
func openNamespace(path string) (*os.File, error) {
	ns, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	theirs, err := ns.Stat()
	if err == nil {
		var ours os.FileInfo
		if ours, err = os.Stat("/proc/thread-self/ns/net"); err == nil && os.SameFile(theirs, ours) {
			err = errOwnNamespace
		}
	}
	if err != nil {
		ns.Close()
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return ns, nil
}

// ipNet returns the prefix of the one address.
func ipNet(a netip.Addr) *net.IPNet {
	return &net.IPNet{IP: a.AsSlice(), Mask: net.CIDRMask(a.BitLen(), a.BitLen())}
}

// DisableTxChecksum turns off transmit checksum offload of an interface in the
// network namespace of the calling thread. The userspace datapath reads frames
// from packet sockets and passes them on as they are: with offload on, their
// checksums are never filled in and the receiver drops them.
func DisableTxChecksum(name string) error { return ethtool.Set(name, ethtool.TxChecksum, false) }

// setOffload turns transmit checksum offload of a pod's interface off on the userspace
// datapath, and on elsewhere. Without it there is no segmentation offload either, which
// costs three quarters of a TCP stream's throughput on the kernel's datapath.
func setOffload(name string, userspace bool) error {
	want := !userspace
	// Some drivers reject any change: do not write an equal value.
	if on, err := ethtool.Get(name, ethtool.TxChecksum); err == nil && on == want {
		return nil
	}
	return ethtool.Set(name, ethtool.TxChecksum, want)
}

// owner is a sandbox and its interface, as the runtime names an attachment.
type owner struct{ sandbox, iface string }
