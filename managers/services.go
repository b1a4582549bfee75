package managers

import (
	"net/netip"
	"slices"
)

// servicePrefixes are the prefixes of Service addresses: those in the configuration
// and those from the datastore.
type servicePrefixes struct {
	configured []netip.Prefix
	// all has both, sorted; no prefix is part of another.
	all []netip.Prefix
}

func newServicePrefixes(configured []netip.Prefix) servicePrefixes {
	return servicePrefixes{configured: configured, all: union(configured, nil)}
}

// set takes the datastore's prefixes and reports whether the union changes.
func (s *servicePrefixes) set(served []netip.Prefix) bool {
	now := union(s.configured, served)
	changed := !slices.Equal(s.all, now)
	s.all = now
	return changed
}

// union returns the prefixes of both lists without those that are part of others.
func union(a, b []netip.Prefix) []netip.Prefix {
	both := slices.Concat(a, b)
	// The shorter of two prefixes with one address comes first.
	slices.SortFunc(both, netip.Prefix.Compare)
	var all []netip.Prefix
	for _, p := range both {
		if n := len(all); n == 0 || !all[n-1].Overlaps(p) {
			all = append(all, p)
		}
	}
	return all
}
