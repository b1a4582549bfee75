package metrics

import (
	"maps"
	"slices"

	"github.com/prometheus/client_golang/prometheus"
)

// State is the agent's state at one scrape.
type State struct {
	// Synced reports that the datastore's first listing is complete.
	Synced bool
	// Ready is the answer to the probe of readiness.
	Ready bool
	// Pending counts the objects with a newest state that is not programmed yet,
	// Quarantined those that the dataplane refuses.
	Pending, Quarantined int
	// Problems counts the objects with a problem that has an Event.
	Problems map[Problem]int
	// InterfacesLost counts the pods of this node whose interface is gone.
	InterfacesLost int
	// HostPolicies counts the policies of the node itself, HostPoliciesWithdrawn those of them that are withdrawn.
	HostPolicies, HostPoliciesWithdrawn int
	// StagedDenied counts the connections that the staged policies would have denied.
	StagedDenied uint64
	// Unread counts the files of the datastore of which no version is known, Outdated those with a former version in force.
	Unread, Outdated int
	// Rules and Elements count our rules and elements in the policy backend.
	Rules, Elements int
	// Flows counts our flows in the bridge.
	Flows int
	// Endpoints counts the pods of this node by state.
	Endpoints map[string]int
}

// Problem is the kind of an object, as "NetworkPolicy", and the reason of the Event.
type Problem struct{ Kind, Reason string }

// stateCollector makes metrics of a State.
type stateCollector struct {
	state func() (State, bool)
}

// stateMetric is a gauge made of a State.
type stateMetric struct {
	desc  *prometheus.Desc
	value func(State) float64
}

func gauge(name, help string, value func(State) float64) stateMetric {
	return stateMetric{desc: prometheus.NewDesc(name, help, nil, nil), value: value}
}

func oneIf(yes bool) float64 {
	if yes {
		return 1
	}
	return 0
}

func readyMetric() stateMetric {
	return gauge("felixlike_ready", "1 if the agent is ready, as the probe of readiness answers. /readyz and the status have the reason if it is not.",
		func(s State) float64 { return oneIf(s.Ready) })
}

func stateMetrics() []stateMetric {
	return []stateMetric{
		gauge("felixlike_datastore_synced", "1 once everything in the datastore is known; nothing is programmed before.",
			func(s State) float64 { return oneIf(s.Synced) }),
		readyMetric(),
		gauge("felixlike_pending_objects", "Policies, groups, pods and nodes with a newest state that is not in the dataplane yet.",
			func(s State) float64 { return float64(s.Pending) }),
		gauge("felixlike_quarantined_objects", "Quarantined objects: the dataplane refuses them, the pods that rely on them are closed, and all else is programmed. The agent's status names them.",
			func(s State) float64 { return float64(s.Quarantined) }),
		gauge("felixlike_interfaces_lost", "Pods of this node without a network because their interface is gone. The agent's status names them.",
			func(s State) float64 { return float64(s.InterfacesLost) }),
		gauge("felixlike_host_policies", "Policies of the node itself.", func(s State) float64 { return float64(s.HostPolicies) }),
		gauge("felixlike_host_policies_withdrawn", "Policies of the node itself that are withdrawn, because the node or its kubelet did not reach the API server with them. The agent's status names them.",
			func(s State) float64 { return float64(s.HostPoliciesWithdrawn) }),
		gauge("felixlike_staged_denied_connections", "Connections that policies which are staged now would have denied on this node, since each was staged or the agent started: a connection counts once for each of these policies. The agent's status has them by policy and pod.",
			func(s State) float64 { return float64(s.StagedDenied) }),
		gauge("felixlike_manifests_unread_files", "Manifests that could never be read in full: policies in them are not in force. The agent's status names them.",
			func(s State) float64 { return float64(s.Unread) }),
		gauge("felixlike_manifests_outdated_files", "Manifests that cannot be read in full: their last good content is in force. The agent's status names them, and says of when the content is.",
			func(s State) float64 { return float64(s.Outdated) }),
		gauge("felixlike_rules", "Rules of the agent that the policy backend holds.", func(s State) float64 { return float64(s.Rules) }),
		gauge("felixlike_set_elements", "Elements of the agent's sets and maps that the policy backend holds.",
			func(s State) float64 { return float64(s.Elements) }),
		gauge("felixlike_flows", "Flows of the agent in the bridge: of forwarding, and of policy with backend openflow.",
			func(s State) float64 { return float64(s.Flows) }),
	}
}

func endpointsDesc() *prometheus.Desc {
	return prometheus.NewDesc("felixlike_endpoints", "Pods of this node by state: programmed; pending (newest policy not in force yet); closed (traffic dropped); detached (no interface yet).",
		[]string{"state"}, nil)
}

func problemsDesc() *prometheus.Desc {
	return prometheus.NewDesc("felixlike_objects_with_problems", "Objects with a problem that this agent knows, by kind and by the reason of its Event. An object with two reasons counts twice. The agent's status names them.",
		[]string{"kind", "reason"}, nil)
}

// Describe implements prometheus.Collector.
func (c *stateCollector) Describe(descs chan<- *prometheus.Desc) {
	for _, m := range stateMetrics() {
		descs <- m.desc
	}
	descs <- endpointsDesc()
	descs <- problemsDesc()
}

// Collect implements prometheus.Collector.
func (c *stateCollector) Collect(out chan<- prometheus.Metric) {
	s, ok := c.state()
	if !ok {
		// The probe of readiness fails as well, and the alert must not lose its series.
		out <- prometheus.MustNewConstMetric(readyMetric().desc, prometheus.GaugeValue, 0)
		return
	}
	for _, m := range stateMetrics() {
		out <- prometheus.MustNewConstMetric(m.desc, prometheus.GaugeValue, m.value(s))
	}
	for _, state := range slices.Sorted(maps.Keys(s.Endpoints)) {
		out <- prometheus.MustNewConstMetric(endpointsDesc(), prometheus.GaugeValue, float64(s.Endpoints[state]), state)
	}
	for p, objects := range s.Problems {
		out <- prometheus.MustNewConstMetric(problemsDesc(), prometheus.GaugeValue, float64(objects), p.Kind, p.Reason)
	}
}
