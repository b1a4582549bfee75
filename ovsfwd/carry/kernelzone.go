package carry

import (
	"context"
	"math"
	"net/netip"
	"slices"

	"github.com/felixlike/felixlike/ovsfwd/conntrack"
	"github.com/felixlike/felixlike/ovsfwd/pipeline"
)

// kernelZone is the zone of the kernel's datapath: entries of the kernel's own
// connection tracking.
type kernelZone struct{ kernel *conntrack.Kernel }

func (z *kernelZone) tracksSCTP() bool { return true }

func (z *kernelZone) dump(context.Context) ([]conntrack.Connection, error) {
	return z.in(pipeline.Zone)
}

func (z *kernelZone) in(zones ...uint16) ([]conntrack.Connection, error) {
	var all []conntrack.Connection
	err := z.kernel.Dump(func(k conntrack.Connection) {
		if slices.Contains(zones, k.Zone) {
			all = append(all, k)
		}
	})
	return all, err
}

// services returns none: on the kernel's datapath the host leads to Services.
func (z *kernelZone) services(context.Context) (all, moved []conntrack.Connection, err error) {
	return nil, nil, nil
}

func (z *kernelZone) dropServices(context.Context, []conntrack.Connection) (int, error) {
	return 0, nil
}

func (z *kernelZone) loosen(context.Context) error { return nil }

func (z *kernelZone) learn(_ context.Context, seeds []seed) (int, error) {
	var reversed []conntrack.Connection
	puts := make([]conntrack.Put, len(seeds))
	for i, s := range seeds {
		p := conntrack.Put{Connection: s.from, New: true, Revive: true, MarkMask: math.MaxUint32}
		if s.known != nil {
			if s.known.Original == s.Tuple {
				p = conntrack.Put{Connection: *s.known, Revive: true, MarkMask: math.MaxUint32}
			} else {
				// The other way round, it would send answers the wrong way.
				reversed = append(reversed, *s.known)
			}
		}
		p.Zone, p.Label, p.Mark = pipeline.Zone, allowedLabel(), s.mark()
		p.Original, p.Reply = s.Tuple, s.Tuple.Reverse()
		p.Liberal = true
		p.State, p.Replied, p.VTags, p.Timeout = settled(&s.from), s.from.Replied, s.from.VTags, lifetime(&s.from)
		puts[i] = p
	}
	if _, err := z.kernel.Delete(reversed); err != nil {
		return 0, err
	}
	return z.kernel.Write(puts)
}

func (z *kernelZone) disallow(_ context.Context, all []conntrack.Connection) (int, error) {
	puts := make([]conntrack.Put, len(all))
	for i, k := range all {
		puts[i] = conntrack.Put{Connection: k, ClearLabel: allowedLabel()}
		puts[i].Label = conntrack.Label{}
	}
	return z.kernel.Write(puts)
}

func (z *kernelZone) drop(_ context.Context, obsolete []conntrack.Connection) (int, error) {
	return z.kernel.Delete(obsolete)
}

func (z *kernelZone) forget(_ context.Context, addrs []netip.Addr) (int, error) {
	obsolete := map[netip.Addr]bool{}
	for _, a := range addrs {
		obsolete[a.Unmap()] = true
	}
	all, err := z.in(pipeline.Zone, pipeline.MovedZone)
	if err != nil {
		return 0, err
	}
	return z.kernel.Delete(slices.DeleteFunc(all, func(k conntrack.Connection) bool {
		return !obsolete[k.Original.Src] && !obsolete[k.Original.Dst]
	}))
}
