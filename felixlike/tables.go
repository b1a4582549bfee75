package felixlike

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/vishvananda/netlink"

	"github.com/felixlike/felixlike/felixlike/metrics"
	"github.com/felixlike/felixlike/internal/listing"
	"github.com/felixlike/felixlike/internal/sysctl"
	"github.com/felixlike/felixlike/ovsfwd/conntrack"
	"github.com/felixlike/felixlike/ovsfwd/vswitchd"
)

// limitedTables returns the node's tables with a limit. It leaves out those that cannot be
// read from here.
func limitedTables(ctx context.Context, daemon *vswitchd.Client) []metrics.Table {
	var all []metrics.Table
	add := func(name string, entries, limit func() (uint64, error)) {
		n, err := entries()
		if err != nil {
			return
		}
		if most, err := limit(); err == nil && most > 0 {
			all = append(all, metrics.Table{Name: name, Entries: n, Limit: most})
		}
	}
	setting := func(key string) func() (uint64, error) {
		return func() (uint64, error) {
			text, err := sysctl.Read(key)
			if err != nil {
				return 0, err
			}
			return strconv.ParseUint(text, 10, 64)
		}
	}
	if entries, limit, err := conntrack.Entries(); err == nil && limit > 0 {
		all = append(all, metrics.Table{Name: "conntrack", Entries: entries, Limit: limit})
	}
	// Only the userspace datapath answers: the kernel's tracks in the table above.
	add("switch-conntrack",
		func() (uint64, error) { return daemon.Connections(ctx) },
		func() (uint64, error) { return daemon.MostConnections(ctx) })
	// /proc has these files, and the kernel's limits, in the first network namespace only. As
	// sysctl, it is that of this thread: /proc/net is that of the process' first one.
	families := map[string]int{"ipv4": netlink.FAMILY_V4, "ipv6": netlink.FAMILY_V6}
	for family, file := range map[string]string{"ipv4": "arp_cache", "ipv6": "ndisc_cache"} {
		add("neighbour-"+family,
			func() (uint64, error) { return limitedNeighbours("/proc/thread-self/net/stat/"+file, families[family]) },
			setting("net/"+family+"/neigh/default/gc_thresh3"))
	}
	return all
}

// limitedNeighbours returns the entries that count against the limit of a neighbour table,
// with the table's statistics at path. Permanent entries do not count (Linux 5.0 and later),
// and a node has one for each of its pods and each other node. Those of other network
// namespaces cannot be read from here: they are in the result.
func limitedNeighbours(path string, family int) (uint64, error) {
	entries, err := neighbourEntries(path)
	if err != nil {
		return 0, err
	}
	known, err := listing.Whole(func() ([]netlink.Neigh, error) { return netlink.NeighList(0, family) })
	if err != nil {
		return 0, err
	}
	for _, n := range known {
		if n.State&netlink.NUD_PERMANENT != 0 && entries > 0 {
			entries--
		}
	}
	return entries, nil
}

// neighbourEntries reads the entries of a neighbour table from its statistics: a heading,
// then a line for each processor, which all begin with the same number of entries.
func neighbourEntries(path string) (uint64, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return 0, err
	}
	_, lines, _ := strings.Cut(string(text), "\n")
	fields := strings.Fields(lines)
	if len(fields) == 0 {
		return 0, fmt.Errorf("%s: no line of numbers", path)
	}
	return strconv.ParseUint(fields[0], 16, 64)
}
