package install

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/felixlike/felixlike/cni"
	"github.com/felixlike/felixlike/internal/listing"
	"github.com/felixlike/felixlike/ovsfwd/ovsdb"
	"github.com/felixlike/felixlike/ovsfwd/supervisor"
	"github.com/felixlike/felixlike/ovsfwd/uplink"
)

// pods removes the interfaces of pods.
func (l Leftovers) pods(context.Context, Record) ([]string, error) {
	all, err := cni.HostInterfaces()
	if err != nil {
		return nil, err
	}
	var errs []error
	for _, name := range all {
		errs = append(errs, removeLink(name))
	}
	return all, errors.Join(errs...)
}

// bridges gives the node's addresses back to the uplink, and removes our bridges:
// through the database if another Open vSwitch serves them, else directly in the
// kernel, where the ended daemons left them.
func (l Leftovers) bridges(ctx context.Context, _ Record) ([]string, error) {
	moves := uplink.In(filepath.Join(l.Root, l.OVSRunDir))
	if _, err := moves.Restore(ovsdb.PhysicalBridge); err != nil {
		return nil, err
	}
	if err := errors.Join(uplink.Unshield(), moves.Forget()); err != nil { // also where the bridge has gone
		return nil, err
	}
	if served(l.socket()) {
		db, err := ovsdb.Open(ctx, ovsdb.Config{Socket: l.socket(), Bridge: l.Bridge})
		if err != nil {
			return nil, err
		}
		defer db.Close()
		return db.RemoveBridges(ctx)
	}
	gone, err := l.kernelDatapath(ctx)
	if err != nil {
		return gone, err
	}
	taps, err := l.taps()
	return append(gone, taps...), err
}

// socket is the path of OVSDB's socket.
func (l Leftovers) socket() string { return filepath.Join(l.Root, l.OVSRunDir, "db.sock") }

func served(socket string) bool {
	conn, err := net.Dial("unix", socket)
	if err != nil {
		return false
	}
	_ = conn.Close()
	return true
}

// kernelDatapath removes the kernel's datapath if it is ours; it works on without its
// daemons. It also removes the datapath's tunnel devices, which an earlier try may have
// left.
func (l Leftovers) kernelDatapath(ctx context.Context) ([]string, error) {
	if _, err := os.Stat(filepath.Join(l.Root, l.OVSRunDir, supervisor.OwnerFile)); err != nil {
		return nil, nil
	}
	var gone []string
	if _, err := netlink.LinkByName(supervisor.KernelDatapath); err == nil {
		out, err := exec.CommandContext(ctx, "ovs-dpctl", "del-dp", "system@"+supervisor.KernelDatapath).CombinedOutput()
		if err != nil {
			return nil, fmt.Errorf("kernel datapath %s: %w: %s", supervisor.KernelDatapath, err, strings.TrimSpace(string(out)))
		}
		gone = append(gone, supervisor.KernelDatapath)
	} else if !errors.As(err, new(netlink.LinkNotFoundError)) {
		return nil, fmt.Errorf("kernel datapath %s: %w", supervisor.KernelDatapath, err)
	}
	links, err := listing.Whole(netlink.LinkList)
	if err != nil {
		return gone, fmt.Errorf("list interfaces: %w", err)
	}
	var errs []error
	for _, link := range links {
		name := link.Attrs().Name
		if ofOpenVSwitch(name) {
			errs = append(errs, removeLink(name))
			gone = append(gone, name)
		}
	}
	return gone, errors.Join(errs...)
}

// taps removes the leftover devices of a userspace datapath: those with these names
// that no process has open.
func (l Leftovers) taps() ([]string, error) {
	var gone []string
	var errs []error
	for _, name := range []string{l.Gateway, l.Bridge, ovsdb.PhysicalBridge, "ovs-netdev"} {
		link, err := netlink.LinkByName(name)
		if err != nil || link.Type() != "tuntap" {
			continue
		}
		if link.Attrs().RawFlags&unix.IFF_UP != 0 && link.Attrs().RawFlags&unix.IFF_LOWER_UP != 0 {
			errs = append(errs, fmt.Errorf("interface %s is in use by an ovs-vswitchd: end that process first", name))
			continue
		}
		errs = append(errs, removeLink(name))
		gone = append(gone, name)
	}
	return gone, errors.Join(errs...)
}

// ofOpenVSwitch reports whether an interface is a tunnel device of the kernel's datapath.
func ofOpenVSwitch(name string) bool {
	return strings.HasPrefix(name, "genev_sys_") || strings.HasPrefix(name, "vxlan_sys_") || name == "gre_sys"
}

func removeLink(name string) error {
	link, err := netlink.LinkByName(name)
	if err == nil {
		err = netlink.LinkDel(link)
	}
	if errors.As(err, new(netlink.LinkNotFoundError)) || errors.Is(err, unix.ENODEV) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("remove interface %s: %w", name, err)
	}
	return nil
}

// Leftovers says where felixlike may have left files, interfaces and rules on a node.
type Leftovers struct {
	// Root is where the node's root directory is mounted.
	Root string
	// BinDir and ConfDir are as in Options.
	BinDir, ConfDir string
	// OVSRunDir has the sockets of Open vSwitch on the node, Bridge is the
	// integration bridge, Gateway its port to the host.
	OVSRunDir, Bridge, Gateway string
	// Running returns an error while an agent runs: it would restore everything.
	Running func(context.Context) error
	// RemoveBackends removes the leftovers of backends, and returns their names.
	RemoveBackends func(context.Context) ([]string, error)
}
