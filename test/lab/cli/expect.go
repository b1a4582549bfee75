package cli

import (
	"github.com/felixlike/felixlike/felixlike/policy/oracle"
	"github.com/felixlike/felixlike/test/lab"
)

// judge knows the expected verdicts in a state, by the reference evaluator.
type judge struct {
	state   *lab.State
	cluster oracle.Cluster
}

func newJudge(s *lab.State) *judge {
	return &judge{state: s, cluster: oracle.Cluster{
		Nodes: s.Nodes, Namespaces: s.Namespaces, Pods: s.Pods, Policies: s.Policies, ClusterPolicies: s.ClusterPolicies, Antrea: s.Antrea,
	}}
}

// expect reports whether a probe should get through, and whether its target
// serves the port at all: without a server, it never gets through.
func (j *judge) expect(p lab.Probe) (through, served bool, err error) {
	from, err := j.state.Address(p.From, p.Family)
	if err != nil {
		return false, false, err
	}
	to, err := j.state.Address(p.To, p.Family)
	if err != nil {
		return false, false, err
	}
	served = j.state.Serves(p.To, p.Protocol, p.Port)
	verdict := j.cluster.Evaluate(oracle.Packet{Source: from, Destination: to, Protocol: p.Protocol, Port: p.Port})
	return verdict.Allowed && served, served, nil
}

// outside reports whether an end is not a pod.
func outside(end string) bool {
	kind, _, err := lab.ParseEnd(end)
	return err == nil && kind != lab.EndPod
}
