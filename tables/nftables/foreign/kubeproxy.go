package foreign

import (
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/felixlike/felixlike/internal/nfnetlink"
)

// kubeProxyTable is the table of kube-proxy in mode nftables; kubeProxyChain is its chain in mode iptables.
const (
	kubeProxyTable = "kube-proxy"
	kubeProxyChain = "KUBE-SERVICES"
)

// KubeProxy returns the tables of kube-proxy, without the name of a chain, and its chains in tables of iptables that the nft variant made. netns is as in
// Drops.
func KubeProxy(netns int) (found []Chain, err error) {
	c, err := nfnetlink.Dial(netns)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	for _, f := range []family{{unix.NFPROTO_IPV4, "ip"}, {unix.NFPROTO_IPV6, "ip6"}} {
		err := dump(c, f, unix.NFT_MSG_GETCHAIN, nil, func(attributes []byte) {
			at := Chain{Family: f.name}
			for kind, v := range nfnetlink.Attributes(attributes) {
				switch kind {
				case unix.NFTA_CHAIN_TABLE:
					at.Table = nfnetlink.Text(v)
				case unix.NFTA_CHAIN_NAME:
					at.Name = nfnetlink.Text(v)
				}
			}
			if at.Table == kubeProxyTable {
				at.Name = ""
			}
			if (at.Table == kubeProxyTable || at.Name == kubeProxyChain) && !slices.Contains(found, at) {
				found = append(found, at)
			}
		})
		if err != nil && !noTables(err) {
			return found, fmt.Errorf("read the chains of family %s: %w", f.name, err)
		}
	}
	return found, nil
}
