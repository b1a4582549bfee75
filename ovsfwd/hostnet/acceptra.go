package hostnet

import (
	"errors"
	"fmt"
	"io/fs"

	"github.com/vishvananda/netlink"

	"github.com/felixlike/felixlike/internal/listing"
	"github.com/felixlike/felixlike/internal/sysctl"
)

// AcceptRouterAdvertisements is the sysctl by which an interface takes router advertisements: 0 never, 1 while it
// does not forward, 2 always (Documentation/networking/ip-sysctl.rst).
func AcceptRouterAdvertisements(name string) string { return "net/ipv6/conf/" + name + "/accept_ra" }

// keepAdvertisedRoutes lets the interfaces that take router advertisements take them also while the node forwards
// IPv6. When forwarding is turned on, the kernel deletes the default routes that interfaces with accept_ra=1 got by
// advertisements, and takes no more of them there; it leaves those with accept_ra=2 as they are
// (rt6_purge_dflt_routers in net/ipv6/route.c).
func (p *pass) keepAdvertisedRoutes() {
	links, err := listing.Whole(netlink.LinkList)
	if err != nil {
		p.fail("keep router advertisements", fmt.Errorf("list interfaces: %w", err))
		return
	}
	for _, link := range links {
		name := link.Attrs().Name
		if name == p.wanted.Gateway || name == "lo" {
			continue
		}
		key := AcceptRouterAdvertisements(name)
		value, err := sysctl.Read(key)
		if err != nil || value != "1" {
			continue // without IPv6, or it has ended
		}
		if err := sysctl.Write(key, "2"); !errors.Is(err, fs.ErrNotExist) {
			p.write("set "+key, err)
		}
	}
}
