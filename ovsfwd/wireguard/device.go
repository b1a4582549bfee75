package wireguard

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
	"golang.zx2c4.com/wireguard/wgctrl"
	"golang.zx2c4.com/wireguard/wgctrl/wgtypes"

	"github.com/felixlike/felixlike/internal/listing"
	"github.com/felixlike/felixlike/internal/namespace"
	"github.com/felixlike/felixlike/internal/sysctl"
	"github.com/felixlike/felixlike/tables"
)

// Kind is the kind of the device's parts in a Repair.
const Kind = "wireguard"

// linkType is the kernel's name of WireGuard devices.
const linkType = "wireguard"

// Device brings the WireGuard device to the desired state. Its methods may be called from any goroutine.
type Device struct {
	name string
	port uint16
	key  Key

	mu     sync.Mutex
	wanted *State
	// mtu is that of the device in bytes; 0 leaves it unchanged.
	mtu int
	// clean is set if the kernel is in sync with the desired state. steady is set if an Apply has programmed the
	// desired state: a difference is then a foreign change.
	clean, steady bool
	noticed       time.Time
}

// Result is the result of one Apply.
type Result struct {
	// Writes counts the changes of the kernel's state.
	Writes int
	// Repaired are the repaired foreign changes.
	Repaired []tables.Repair
}

// NewDevice returns the device of that name without a desired state.
func NewDevice(name string, port uint16, key Key) *Device {
	return &Device{name: name, port: port, key: key}
}

// SetState replaces the desired state.
func (d *Device) SetState(s State) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.wanted != nil && reflect.DeepEqual(*d.wanted, s) {
		return
	}
	d.wanted, d.clean, d.steady = &s, false, false
}

// SetMTU sets the MTU of the device.
func (d *Device) SetMTU(mtu int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if mtu != d.mtu {
		d.mtu, d.clean, d.steady = mtu, false, false
	}
}

// Invalidate makes the next Apply read the kernel again.
func (d *Device) Invalidate() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.clean = false
}

// Apply writes the differences. It reads nothing if the desired state is unchanged and Watch has noticed no change.
func (d *Device) Apply(context.Context) (Result, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.wanted == nil || d.clean {
		return Result{}, nil
	}
	var did Result
	made := false
	// The second look is at what the first made: a new device has no key, peers or addresses yet.
	for range 2 {
		todo, err := d.differences()
		if err != nil {
			return did, err
		}
		for _, w := range todo {
			if err := w.write(); err != nil {
				return did, fmt.Errorf("WireGuard device %s: %s: %w", d.name, w.name, err)
			}
			did.Writes++
			if d.steady && !made {
				did.Repaired = append(did.Repaired, tables.Repair{Object: Kind, Name: w.name, What: w.what, Noticed: d.noticedBy(time.Now())})
			}
		}
		if len(todo) == 0 {
			break
		}
		made = todo[0].makes
	}
	d.clean, d.steady, d.noticed = true, true, time.Time{}
	return did, nil
}

func (d *Device) noticedBy(now time.Time) time.Time {
	if d.noticed.IsZero() {
		return now
	}
	return d.noticed
}

// write is a write to the kernel that removes one difference.
type write struct {
	// name is the part of the device, what the difference.
	name, what string
	write      func() error
	// makes is set for the write that makes the device. All that comes after it is part of it.
	makes bool
}

// differences returns the writes that bring the observed state to the desired one, in their order. The device is up only
// once it has its key.
func (d *Device) differences() ([]write, error) {
	link, err := netlink.LinkByName(d.name)
	if errors.As(err, new(netlink.LinkNotFoundError)) {
		return []write{{name: "device", what: "missing", makes: true, write: func() error { return add(d.name) }}}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("WireGuard device %s: %w", d.name, err)
	}
	if link.Type() != linkType {
		return nil, fmt.Errorf("the interface %s of another program is of type %s: remove it, the agent makes a WireGuard device of this name", d.name, link.Type())
	}
	all, err := d.configuration()
	if err != nil {
		return nil, err
	}
	filter := "net/ipv4/conf/" + d.name + "/rp_filter"
	// Loose, as at the gateway port: packets from a peer's own address come in here, while the main table has it on the
	// uplink.
	if value, err := sysctl.Read(filter); err != nil || value != "2" {
		all = append(all, write{name: "rp_filter", what: value + " instead of 2", write: func() error { return sysctl.Write(filter, "2") }})
	}
	at := link.Attrs()
	if d.mtu > 0 && at.MTU != d.mtu {
		all = append(all, write{name: "mtu", what: fmt.Sprintf("%d instead of %d", at.MTU, d.mtu), write: func() error { return netlink.LinkSetMTU(link, d.mtu) }})
	}
	addresses, err := d.addresses(link)
	if err != nil {
		return nil, err
	}
	all = append(all, addresses...)
	if at.Flags&net.FlagUp == 0 {
		all = append(all, write{name: "device", what: "down", write: func() error { return netlink.LinkSetUp(link) }})
	}
	return all, nil
}

// ErrUnsupported is the error of a kernel without WireGuard.
var ErrUnsupported = errors.New("this kernel has no WireGuard (module wireguard, since Linux 5.6): install the module, or set encryption to none")

// add makes the device.
func add(name string) error {
	err := netlink.LinkAdd(&netlink.Wireguard{LinkAttrs: netlink.LinkAttrs{Name: name}})
	if errors.Is(err, unix.EOPNOTSUPP) {
		return ErrUnsupported
	}
	return err
}

// configuration returns the writes of key, port and peers.
func (d *Device) configuration() ([]write, error) {
	// A new client each time: one that was made before the kernel loaded the module does not know it.
	client, err := wgctrl.New()
	if err != nil {
		return nil, fmt.Errorf("WireGuard of the kernel: %w", err)
	}
	defer client.Close()
	have, err := client.Device(d.name)
	if err != nil {
		return nil, fmt.Errorf("read WireGuard device %s: %w", d.name, err)
	}
	var all []write
	add := func(name, what string, c wgtypes.Config) {
		all = append(all, write{name: name, what: what, write: func() error { return configure(d.name, c) }})
	}
	if have.PrivateKey != d.key.private {
		add("private key", "another one", wgtypes.Config{PrivateKey: &d.key.private})
	}
	if port := int(d.port); have.ListenPort != port {
		add("port", fmt.Sprintf("%d instead of %d", have.ListenPort, port), wgtypes.Config{ListenPort: &port})
	}
	if none := 0; have.FirewallMark != none {
		add("fwmark", fmt.Sprintf("%#x", have.FirewallMark), wgtypes.Config{FirewallMark: &none})
	}
	for _, c := range changes(d.wanted.Peers, have.Peers) {
		add("peer "+c.peer.PublicKey.String(), c.what, wgtypes.Config{Peers: []wgtypes.PeerConfig{c.peer}})
	}
	return all, nil
}

func configure(name string, c wgtypes.Config) error {
	client, err := wgctrl.New()
	if err != nil {
		return err
	}
	defer client.Close()
	return client.ConfigureDevice(name, c)
}

// addresses returns the writes of addresses.
func (d *Device) addresses(link netlink.Link) (all []write, err error) {
	have, err := listing.Whole(func() ([]netlink.Addr, error) { return netlink.AddrList(link, netlink.FAMILY_ALL) })
	if err != nil {
		return nil, fmt.Errorf("list addresses of %s: %w", d.name, err)
	}
	lacks := slices.Clone(d.wanted.Addresses)
	for i := range have {
		a := prefixOf(*have[i].IPNet)
		if at := slices.Index(lacks, a); at >= 0 {
			lacks = slices.Delete(lacks, at, at+1)
			continue
		}
		if a.Addr().IsLinkLocalUnicast() {
			continue // the kernel's
		}
		all = append(all, write{name: "address " + a.String(), what: "foreign", write: func() error { return netlink.AddrDel(link, &have[i]) }})
	}
	for _, a := range lacks {
		all = append(all, write{name: "address " + a.String(), what: "missing", write: func() error { return netlink.AddrAdd(link, address(a)) }})
	}
	return all, nil
}

// address is a single address without a route. It is also the gateway port's, so it is no duplicate.
func address(a netip.Prefix) *netlink.Addr {
	n := netOf(a)
	out := &netlink.Addr{IPNet: &n, Flags: unix.IFA_F_NOPREFIXROUTE}
	if a.Addr().Is6() {
		out.Flags |= unix.IFA_F_NODAD
	}
	return out
}

// Remove removes the device of that name, and reports whether there was one. It leaves the interface of another program.
func Remove(name string) (bool, error) {
	link, err := netlink.LinkByName(name)
	if errors.As(err, new(netlink.LinkNotFoundError)) {
		return false, nil
	}
	if err == nil && link.Type() == linkType {
		err = netlink.LinkDel(link)
	}
	if err != nil {
		return false, fmt.Errorf("remove WireGuard device %s: %w", name, err)
	}
	return link.Type() == linkType, nil
}

// Supported returns why the kernel has no WireGuard, or nil. It tries a device in a network namespace of its own.
func Supported() error {
	ns, err := namespace.Anonymous()
	if err != nil {
		return fmt.Errorf("try a WireGuard device: %w", err)
	}
	defer ns.Close()
	return ns.Do(func() error { return add("probe") })
}
