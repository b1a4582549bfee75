package lab

import (
	"errors"
	"fmt"
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/felixlike/felixlike/cni"
	"github.com/felixlike/felixlike/internal/namespace"
	"github.com/felixlike/felixlike/internal/sysctl"
	"github.com/felixlike/felixlike/ovsfwd/ovsdb"
)

// prepare runs in every namespace of a lab, on its thread: loopback up, and
// IPv6 addresses usable at once (there is no other host on these wires).
func prepare() error {
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return fmt.Errorf("loopback: %w", err)
	}
	return errors.Join(
		netlink.LinkSetUp(lo),
		sysctl.Write("net/ipv6/conf/all/accept_dad", "0"),
		sysctl.Write("net/ipv6/conf/default/accept_dad", "0"),
		sysctl.Write("net/ipv6/conf/all/accept_ra", "0"),
		sysctl.Write("net/ipv6/conf/default/accept_ra", "0"),
		sysctl.Write("net/ipv6/conf/all/disable_ipv6", "0"),
	)
}

// addAddress gives an interface an address that is usable at once.
func addAddress(link netlink.Link, prefix netip.Prefix) error {
	err := netlink.AddrReplace(link, &netlink.Addr{IPNet: ipNet(prefix), Flags: unix.IFA_F_NODAD})
	if err != nil {
		return fmt.Errorf("add %s to %s: %w", prefix, link.Attrs().Name, err)
	}
	return nil
}

func removeAddress(link netlink.Link, prefix netip.Prefix) error {
	err := netlink.AddrDel(link, &netlink.Addr{IPNet: ipNet(prefix)})
	if err != nil && !errors.Is(err, unix.EADDRNOTAVAIL) {
		return fmt.Errorf("remove %s from %s: %w", prefix, link.Attrs().Name, err)
	}
	return nil
}

func ipNet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}

func single(a netip.Addr) netip.Prefix { return netip.PrefixFrom(a, a.BitLen()) }

// up sets an interface up. Unless the nodes have the kernel's datapath, checksum
// offload is off (cni.DisableTxChecksum gives the reason).
func up(link netlink.Link, datapath string) error {
	if datapath != ovsdb.DatapathSystem {
		if err := cni.DisableTxChecksum(link.Attrs().Name); err != nil {
			return err
		}
	}
	if err := netlink.LinkSetUp(link); err != nil {
		return fmt.Errorf("set %s up: %w", link.Attrs().Name, err)
	}
	return nil
}

// newNamespace records, makes and prepares a namespace.
func newNamespace(r *record, name string) (*namespace.Namespace, error) {
	if err := r.addNamespace(name); err != nil {
		return nil, err
	}
	ns, err := namespace.Create(name)
	if err != nil {
		return nil, err
	}
	if err := ns.Do(prepare); err != nil {
		ns.Close()
		return nil, fmt.Errorf("prepare namespace %s: %w", name, err)
	}
	return ns, nil
}

// dropNamespace deletes a namespace and forgets it.
func dropNamespace(r *record, ns *namespace.Namespace) error {
	ns.Close()
	if err := namespace.Delete(ns.Name()); err != nil {
		return err
	}
	return r.dropNamespace(ns.Name())
}
