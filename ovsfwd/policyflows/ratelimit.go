package policyflows

import "github.com/felixlike/felixlike/ovsfwd/openflow"

// rateLimit has the flows that bound the rate of new connections of each pod.
type rateLimit struct {
	*objects
	flows Flows
	// bounded says that the rates are bounded.
	bounded bool
	// meters are those of the pods that have flows with one.
	meters map[string]uint32
}

// setBounded turns the limit for new connections on or off. The switch must have the
// meters (RateMeters) before the limit is on, and until it is off.
func (rl *rateLimit) setBounded(bounded bool) {
	if rl.bounded == bounded {
		return
	}
	rl.bounded = bounded
	for name := range rl.pods {
		rl.dirty.rates[name] = struct{}{}
	}
}

// inUse returns the meters that the flows name.
func (rl *rateLimit) inUse() map[uint32]bool {
	meters := map[uint32]bool{}
	for _, id := range rl.meters {
		meters[id] = true
	}
	return meters
}

// setPod sets or removes the flows that bound the rate of a pod. A closed pod adds no
// connections. Nor does it have its address to itself: it may have left before another one
// that had the address after it.
func (rl *rateLimit) setPod(name string) {
	p := rl.pods[name]
	if p != nil && p.Open && rl.bounded && p.Port != 0 && IsRateMeter(RateMeter(p.Port)) && len(p.Addresses) > 0 {
		rl.meters[name] = RateMeter(p.Port)
		rl.flows.SetFlows(rateKey(name), func() []openflow.Flow { return rateFlows(rl.pods[name]) })
	} else if _, had := rl.meters[name]; had {
		delete(rl.meters, name)
		rl.flows.RemoveFlows(rateKey(name))
	}
}
