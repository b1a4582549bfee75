package workload_test

import (
	"testing"

	"github.com/felixlike/felixlike/test/bench/workload"
)

// TestBurner counts the model of the node: 100 pods in as many namespaces, with 6 rules a policy. Each rule has a
// group of its own for pods; the policies of all namespaces share 50 blocks.
func TestBurner(t *testing.T) {
	b := workload.KubeBurner()
	e, updates := loadObjects(t, b.Attachments(), append(b.Cluster(), b.AllPolicies()...))
	got := count(t, updates)
	const policies = 100 * 20
	if got.endpoints != 100 || got.policies != policies || got.rules != 6*policies || got.nodes != b.Nodes {
		t.Errorf("updates %+v", got)
	}
	before, changed := b.LaterChange(3)
	e.SetNetworkPolicy(changed)
	e.SetPod(b.LaterPod(4))
	if got := count(t, e.Flush()); got.policies != 1 || got.added == 0 {
		t.Errorf("changes: updates %+v", got)
	}
	e.SetNetworkPolicy(before)
	if got := count(t, e.Flush()); got.policies != 1 {
		t.Errorf("a policy as it was: updates %+v", got)
	}
}
