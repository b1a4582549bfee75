package workload

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Profile is the size of a workload.
type Profile struct {
	Name string `json:"name"`
	// Namespaces holds the endpoints and the policies in equal parts; as many
	// further namespaces hold the pods of the other nodes.
	Namespaces int `json:"namespaces"`
	// Endpoints is the number of pods on this node, PoliciesPerEndpoint how
	// many policies apply to each. The lists of two endpoints differ.
	Endpoints           int `json:"endpoints"`
	PoliciesPerEndpoint int `json:"policiesPerEndpoint"`
	// Policies have RulesPerPolicy rules each, half of them ingress.
	Policies       int `json:"policies"`
	RulesPerPolicy int `json:"rulesPerPolicy"`
	// Groups are distinct selectors that match GroupSize pods each, all of
	// them on other nodes.
	Groups    int `json:"groups"`
	GroupSize int `json:"groupSize"`
	// EngineDivisor divides the sizes of Antrea's benchmark clusters
	// for the policy engine's start-up; zero leaves them out.
	EngineDivisor int `json:"engineDivisor"`
	// Samples is the least number of measurements of the cheapest change in a whole
	// run.
	Samples int `json:"samples"`
	// Idle is the length of the idle case.
	Idle time.Duration `json:"idleNanoseconds"`
	// Changes is the number of changes of a policy in a turn, from allow to deny
	// and back, while probes are sent; Among is the number of other policies of the pod.
	Changes int `json:"changes,omitempty"`
	Among   int `json:"among,omitempty"`
	// Points are the numbers of policies and peers, Traffic is the time of
	// each kind of traffic in a turn.
	Points  []Point       `json:"points,omitempty"`
	Traffic time.Duration `json:"trafficNanoseconds,omitempty"`
}

// W1 is the name of the reference workload, which the budgets are for.
const W1 = "w1"

// Profiles returns the profiles that can be chosen, the smallest first.
func Profiles() []Profile {
	return []Profile{
		{
			Name: "small", Namespaces: 2, Endpoints: 20, PoliciesPerEndpoint: 4,
			Policies: 20, RulesPerPolicy: 4, Groups: 10, GroupSize: 5, EngineDivisor: 100, Samples: 40, Idle: time.Second,
			Changes: 5, Among: 4, Points: []Point{{0, 0}, {1, 1}, {10, 100}}, Traffic: 500 * time.Millisecond,
		},
		{
			Name: "w1-100", Namespaces: 10, Endpoints: 100, PoliciesPerEndpoint: 10,
			Policies: 1000, RulesPerPolicy: 10, Groups: 500, GroupSize: 20, Samples: 600, Idle: 20 * time.Second,
			Changes: 20, Among: 100, Points: []Point{{0, 0}, {1, 1}, {10, 1}, {100, 1}, {1000, 1}, {10, 1000}, {10, 10000}}, Traffic: time.Second,
		},
		{
			Name: W1, Namespaces: 10, Endpoints: 1000, PoliciesPerEndpoint: 10,
			Policies: 1000, RulesPerPolicy: 10, Groups: 500, GroupSize: 20, EngineDivisor: 1, Samples: 600, Idle: 20 * time.Second,
			Changes: 20, Among: 100, Points: []Point{{0, 0}, {1, 1}, {10, 1}, {100, 1}, {1000, 1}, {10, 1000}, {10, 10000}}, Traffic: time.Second,
		},
		{
			// In 8 GB: agent and switch have less than 1 GB each. One that has
			// 5,000 policies for one pod is more than openflow takes.
			Name: "large", Namespaces: 20, Endpoints: 2500, PoliciesPerEndpoint: 10,
			Policies: 5000, RulesPerPolicy: 10, Groups: 2000, GroupSize: 20, Samples: 100, Idle: 20 * time.Second,
			Changes: 20, Among: 1000, Points: []Point{{0, 0}, {10, 1}, {1000, 1}, {2000, 1}, {1000, 10000}}, Traffic: time.Second,
		},
	}
}

// FindProfile returns the profile of that name.
func FindProfile(name string) (Profile, error) {
	var names []string
	for _, p := range Profiles() {
		if p.Name == name {
			return p, nil
		}
		names = append(names, p.Name)
	}
	slices.Sort(names)
	return Profile{}, fmt.Errorf("profile %q: must be one of %s", name, strings.Join(names, ", "))
}

// String describes the profile.
func (p Profile) String() string {
	return fmt.Sprintf("One node, %d endpoints with %d policies each, %d policies x %d rules, %d address groups x %d members",
		p.Endpoints, p.PoliciesPerEndpoint, p.Policies, p.RulesPerPolicy, p.Groups, p.GroupSize)
}
