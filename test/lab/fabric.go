package lab

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"sync"

	"github.com/vishvananda/netlink"

	"github.com/felixlike/felixlike/internal/namespace"
	"github.com/felixlike/felixlike/internal/sysctl"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/test/lab/probe"
)

const (
	fabricBridge = "br0"
	uplink       = "eth0"
)

// fabric is the network between the nodes and everything outside the cluster:
// a bridge, the nodes' default gateway, and the hosts that probes name by
// address, which are addresses of the bridge.
type fabric struct {
	ns *namespace.Namespace
	// datapath is the nodes'.
	datapath string
	station  *probe.Station

	mu      sync.Mutex
	outside map[netip.Addr]bool
	// gateways are the fabric's own addresses on the nodes' subnets.
	gateways map[netip.Prefix]bool
}

func newFabric(r *record, datapath string) (*fabric, error) {
	ns, err := newNamespace(r, fabricNamespace(r.Name))
	if err != nil {
		return nil, err
	}
	err = ns.Do(func() error {
		err := errors.Join(
			sysctl.Write("net/ipv4/ip_forward", "1"),
			sysctl.Write("net/ipv4/conf/all/rp_filter", "0"),
			sysctl.Write("net/ipv4/conf/default/rp_filter", "0"),
			sysctl.Write("net/ipv4/conf/all/send_redirects", "0"),
			sysctl.Write("net/ipv4/conf/default/send_redirects", "0"),
			sysctl.Write("net/ipv6/conf/all/forwarding", "1"),
		)
		if err != nil {
			return err
		}
		bridge := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: fabricBridge}}
		if err := netlink.LinkAdd(bridge); err != nil {
			return fmt.Errorf("add bridge: %w", err)
		}
		return up(bridge, datapath)
	})
	if err != nil {
		ns.Close()
		return nil, fmt.Errorf("fabric: %w", err)
	}
	return &fabric{ns: ns, datapath: datapath, station: probe.NewStation(ns), outside: map[netip.Addr]bool{}, gateways: map[netip.Prefix]bool{}}, nil
}

// close ends the servers and the thread; the namespace is deleted with the
// lab's record.
func (f *fabric) close() error {
	err := f.station.Close()
	f.ns.Close()
	return err
}

// setGateways gives the fabric its addresses on the nodes' subnets, and takes
// away those of subnets that have gone: a node may have such an address now.
func (f *fabric) setGateways(wanted map[netip.Prefix]bool) error {
	err := f.ns.Do(func() error {
		bridge, err := netlink.LinkByName(fabricBridge)
		if err != nil {
			return err
		}
		var errs []error
		for gateway := range f.gateways {
			if !wanted[gateway] {
				errs = append(errs, removeAddress(bridge, gateway))
			}
		}
		for gateway := range wanted {
			if !f.gateways[gateway] {
				errs = append(errs, addAddress(bridge, gateway))
			}
		}
		return errors.Join(errs...)
	})
	if err != nil {
		return fmt.Errorf("fabric: gateways: %w", err)
	}
	f.gateways = wanted
	return nil
}

// connect joins a node to the bridge: uplink in the node, a port here named
// after the node, and routes to the node's pods.
func (f *fabric) connect(n *nodeSpec, node *namespace.Namespace) error {
	peer, err := os.Open(node.Path())
	if err != nil {
		return fmt.Errorf("fabric: node %s: %w", n.Name, err)
	}
	defer peer.Close()
	err = f.ns.Do(func() error {
		bridge, err := netlink.LinkByName(fabricBridge)
		if err != nil {
			return err
		}
		port := fabricPort(n.Name)
		// The port of a node that failed goes with its namespace, some time.
		if old, err := netlink.LinkByName(port); err == nil {
			if err := netlink.LinkDel(old); err != nil {
				return fmt.Errorf("remove old %s: %w", port, err)
			}
		}
		err = netlink.LinkAdd(&netlink.Veth{
			LinkAttrs: netlink.LinkAttrs{Name: port, MasterIndex: bridge.Attrs().Index},
			PeerName:  uplink, PeerNamespace: netlink.NsFd(int(peer.Fd())),
		})
		if err != nil {
			return fmt.Errorf("add veth %s: %w", port, err)
		}
		link, err := netlink.LinkByName(port)
		if err != nil {
			return err
		}
		errs := []error{sysctl.Write("net/ipv6/conf/"+port+"/disable_ipv6", "1"), up(link, f.datapath)}
		for _, cidr := range n.routed() {
			errs = append(errs, netlink.RouteReplace(&netlink.Route{
				LinkIndex: bridge.Attrs().Index, Dst: ipNet(cidr),
				Gw: n.Address(model.FamilyOf(cidr.Addr())).AsSlice(),
			}))
		}
		return errors.Join(errs...)
	})
	if err != nil {
		return fmt.Errorf("fabric: node %s: %w", n.Name, err)
	}
	return nil
}

// disconnect removes a node's port and the routes to its pods.
func (f *fabric) disconnect(n *nodeSpec) error {
	return f.ns.Do(func() error {
		var errs []error
		for _, cidr := range n.routed() {
			errs = append(errs, netlink.RouteDel(&netlink.Route{Dst: ipNet(cidr)}))
		}
		link, err := netlink.LinkByName(fabricPort(n.Name))
		if err == nil {
			err = netlink.LinkDel(link)
		}
		if err := errors.Join(append(errs, err)...); err != nil {
			return fmt.Errorf("fabric: disconnect node %s: %w", n.Name, err)
		}
		return nil
	})
}

// host makes sure that a host outside the cluster has the address.
func (f *fabric) host(a netip.Addr) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.outside[a] {
		return nil
	}
	err := f.ns.Do(func() error {
		bridge, err := netlink.LinkByName(fabricBridge)
		if err != nil {
			return err
		}
		return addAddress(bridge, single(a))
	})
	if err != nil {
		return fmt.Errorf("host %s outside the cluster: %w", a, err)
	}
	f.outside[a] = true
	return nil
}

// forget removes all hosts outside: their addresses may be a node's next.
func (f *fabric) forget() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	var errs []error
	for a := range f.outside {
		errs = append(errs, f.station.Withdraw(a), f.ns.Do(func() error {
			bridge, err := netlink.LinkByName(fabricBridge)
			if err != nil {
				return err
			}
			return removeAddress(bridge, single(a))
		}))
		delete(f.outside, a)
	}
	return errors.Join(errs...)
}
