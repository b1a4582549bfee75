package bench

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/felixlike/felixlike/internal/namespace"
)

// floor is the path of packets without policy, agent and switch: two pods at the ends
// of a veth pair with all of the kernel's offloads on.
type floor struct {
	wire *wire
	// Nothing in these namespaces outlives this process.
	client, server *namespace.Namespace
}

func startFloor(ctx context.Context) (_ *floor, err error) {
	f := &floor{}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("plain veth pair: %w", err), f.stop())
		}
	}()
	for _, ns := range []**namespace.Namespace{&f.client, &f.server} {
		if *ns, err = namespace.Anonymous(); err != nil {
			return nil, err
		}
	}
	if err := f.join(); err != nil {
		return nil, err
	}
	for at, ns := range []*namespace.Namespace{f.client, f.server} {
		if err := ns.Do(func() error { return openEnd(labAddress(byte(at))) }); err != nil {
			return nil, err
		}
	}
	f.wire, err = newWire(f.client, f.server, labAddress(1), 0)
	return f, err
}

// join makes the pair.
func (f *floor) join() error {
	var server *os.File
	err := f.server.Do(func() (err error) {
		server, err = os.Open(fmt.Sprintf("/proc/self/task/%d/ns/net", unix.Gettid()))
		return err
	})
	if err != nil {
		return err
	}
	defer server.Close()
	return f.client.Do(func() error {
		return netlink.LinkAdd(&netlink.Veth{
			LinkAttrs: netlink.LinkAttrs{Name: podInterface, MTU: podMTU},
			PeerName:  podInterface, PeerMTU: podMTU, PeerNamespace: netlink.NsFd(int(server.Fd())),
		})
	})
}

// openEnd sets one end up, in its namespace.
func openEnd(address netip.Addr) error {
	link, err := netlink.LinkByName(podInterface)
	if err != nil {
		return fmt.Errorf("interface %s: %w", podInterface, err)
	}
	const bits = 24
	ip, err := netlink.ParseAddr(netip.PrefixFrom(address, bits).String())
	if err != nil {
		return err
	}
	return errors.Join(netlink.AddrReplace(link, ip), netlink.LinkSetUp(link))
}

func (f *floor) stop() error {
	if f.wire != nil {
		f.wire.close()
	}
	for _, ns := range []*namespace.Namespace{f.client, f.server} {
		if ns != nil {
			ns.Close()
		}
	}
	return nil
}
