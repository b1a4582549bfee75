package foreign

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
)

// Incoming returns the interface by which packets to an address leave, which should be that by which they come. netns is as in
// Drops.
func Incoming(ns int, from netip.Addr) (in Interface, err error) {
	h, err := handle(ns)
	if err != nil {
		return Interface{}, err
	}
	defer h.Close()
	routes, err := h.RouteGet(from.AsSlice())
	if err == nil && len(routes) == 0 {
		err = errors.New("none")
	}
	if err != nil {
		return Interface{}, fmt.Errorf("route to %s: %w", from, err)
	}
	link, err := h.LinkByIndex(routes[0].LinkIndex)
	if err != nil {
		return Interface{}, fmt.Errorf("interface %d of the route to %s: %w", routes[0].LinkIndex, from, err)
	}
	return Interface{Name: link.Attrs().Name, Index: link.Attrs().Index}, nil
}

// Named returns the interface of a name. Without such an interface its number is not known. netns is as in Drops.
func Named(ns int, name string) Interface {
	in := Interface{Name: name}
	h, err := handle(ns)
	if err != nil {
		return in
	}
	defer h.Close()
	if link, err := h.LinkByName(name); err == nil {
		in.Index = link.Attrs().Index
	}
	return in
}

func handle(ns int) (h *netlink.Handle, err error) {
	if ns == 0 {
		h, err = netlink.NewHandle()
	} else {
		h, err = netlink.NewHandleAt(netns.NsHandle(ns))
	}
	if err != nil {
		return nil, fmt.Errorf("connect to rtnetlink: %w", err)
	}
	return h, nil
}
