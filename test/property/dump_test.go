package property

import (
	"fmt"
	"os/exec"
	"strings"

	"github.com/felixlike/felixlike/felixlike/config"
	"github.com/felixlike/felixlike/tables/nftables"
	"github.com/felixlike/felixlike/test/tablestest"
)

// dump lists a backend's state in the kernel, in the network namespace of the
// thread, without counters, and in an order that does not depend on the age of an object:
// only rules keep their order.
func dump(backend string, k kernel) (string, error) {
	switch {
	case usesBridge(backend):
		return k.bridge.flows()
	case backend == config.NFTables || backend == nftablesMaps:
		listing, err := run("nft", "-s", "list", "table", "inet", nftables.DefaultTable)
		return tablestest.CanonicalNFT(listing), err
	}
	var parts []string
	for _, save := range []string{backend + "-save", "ip6" + strings.TrimPrefix(backend, "ip") + "-save"} {
		saved, err := run(save)
		if err != nil {
			return "", err
		}
		parts = append(parts, save+"\n"+tablestest.CanonicalIPTables(saved))
	}
	sets, err := run("ipset", "save")
	return strings.Join(parts, "") + tablestest.CanonicalIPSets(sets), err
}

func run(name string, args ...string) (string, error) {
	out, err := exec.Command(name, args...).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, out)
	}
	return string(out), nil
}
