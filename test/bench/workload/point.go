package workload

import "fmt"

// Point is a size of the policies that packets meet.
type Point struct {
	// Policies is the number of policies of the server pod; with none, the
	// packets pass a backend without any rule for it.
	Policies int `json:"policies"`
	// Peers is the number of pods that the deciding rule allows. It is
	// the last rule of the last policy.
	Peers int `json:"peers"`
}

// String describes the point.
func (p Point) String() string {
	if p.Policies == 0 {
		return "no policy"
	}
	return count(p.Policies, "policy", "policies") + ", " + count(p.Peers, "peer", "peers")
}

func count(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}

// The most of each: later policies would name the ports and blocks of earlier
// ones, and later pods would have no address.
const (
	maxPolicies = 5000
	maxPeers    = 1 << 20
)

// Check returns an error if there can be no such point.
func (p Point) Check() error {
	switch {
	case p.Policies < 0 || p.Policies > maxPolicies:
		return fmt.Errorf("%d policies: must be 0 to %d", p.Policies, maxPolicies)
	case p.Policies == 0 && p.Peers != 0:
		return fmt.Errorf("no policy that %d peers could be named in", p.Peers)
	case p.Policies > 0 && (p.Peers < 1 || p.Peers >= maxPeers):
		return fmt.Errorf("%d peers: must be 1 to %d", p.Peers, maxPeers-1)
	}
	return nil
}

// Points returns every combination of numbers of policies and of peers.
func Points(policies, peers []int) []Point {
	var all []Point
	for _, n := range policies {
		if n == 0 {
			all = append(all, Point{})
			continue
		}
		for _, m := range peers {
			all = append(all, Point{Policies: n, Peers: m})
		}
	}
	return all
}
