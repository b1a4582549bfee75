package cnitest

import (
	"fmt"
	"net/netip"
	"os/exec"

	"github.com/felixlike/felixlike/internal/namespace"
)

// ToEarlierForm gives a pod's interface the form in which earlier versions attached pods: its addresses have the length of the node's
// prefix, so that the other pods of the node are on link, and it has no permanent neighbour.
func ToEarlierForm(pod *namespace.Namespace, iface string, addresses []netip.Prefix, gateways []netip.Addr) error {
	run := func(args ...string) error {
		if out, err := exec.Command("ip", args...).CombinedOutput(); err != nil {
			return fmt.Errorf("ip %v: %w: %s", args, err, out)
		}
		return nil
	}
	return pod.Do(func() error {
		for i, a := range addresses {
			single, gateway := netip.PrefixFrom(a.Addr(), a.Addr().BitLen()).String(), gateways[i].String()
			for _, args := range [][]string{
				{"neighbour", "del", gateway, "dev", iface},
				{"address", "del", single, "dev", iface},
				{"address", "add", a.String(), "dev", iface},
				{"route", "replace", "default", "via", gateway, "dev", iface},
			} {
				if err := run(args...); err != nil {
					return err
				}
			}
			if a.Addr().Is6() {
				// The route to the gateway has gone with an IPv4 address.
				if err := run("route", "del", gateway, "dev", iface); err != nil {
					return err
				}
			}
		}
		return nil
	})
}
