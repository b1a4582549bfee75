package conntrack

import (
	"fmt"
	"strconv"

	"github.com/felixlike/felixlike/internal/sysctl"
)

// Entries returns the number of the kernel's entries in the network namespace of the calling thread, and the limit.
func Entries() (entries, limit uint64, err error) {
	for name, to := range map[string]*uint64{"nf_conntrack_count": &entries, "nf_conntrack_max": &limit} {
		text, err := sysctl.Read("net/netfilter/" + name)
		if err != nil {
			return 0, 0, fmt.Errorf("table of connections: %w", err)
		}
		if *to, err = strconv.ParseUint(text, 10, 64); err != nil {
			return 0, 0, fmt.Errorf("table of connections: %s: %w", name, err)
		}
	}
	return entries, limit, nil
}
