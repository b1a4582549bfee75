package backend

import (
	"context"
	"errors"
	"fmt"

	"github.com/felixlike/felixlike/tables/iptables"
	"github.com/felixlike/felixlike/tables/nftables/foreign"
)

// KubeProxy returns the tables and chains that kube-proxy has on this node, or has left, each with how to remove it. Services of IPVS are not among them
// (internal/ipvs). What it has found before an error is in the result.
func KubeProxy(ctx context.Context, netns int) (found []string, err error) {
	const cleanup = "remove kube-proxy from this node and run kube-proxy --cleanup"
	chains, err := foreign.KubeProxy(netns)
	for _, c := range chains {
		if c.Name == "" {
			found = append(found, fmt.Sprintf("table %s %s: remove kube-proxy from this node and run nft delete table %s %s", c.Family, c.Table, c.Family, c.Table))
		} else {
			found = append(found, fmt.Sprintf("chain %s of table %s %s (iptables-nft): %s", c.Name, c.Family, c.Table, cleanup))
		}
	}
	families, legacyErr := iptables.LegacyKubeProxy(ctx, netns)
	for _, f := range families {
		found = append(found, fmt.Sprintf("chain KUBE-SERVICES of table nat (iptables-legacy, IPv%s): %s", f, cleanup))
	}
	return found, errors.Join(err, legacyErr)
}
