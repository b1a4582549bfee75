package workloads

// Placement says on which nodes the pods are.
type Placement string

const (
	// OneNode spreads the pods over 1,000 nodes at random, as Antrea's
	// benchmarks do, of which LocalNode is one.
	OneNode Placement = "one-node"
	// EveryPodLocal puts all pods on LocalNode.
	EveryPodLocal Placement = "every-pod-local"
)

// Placements lists both placements.
func Placements() []Placement { return []Placement{EveryPodLocal, OneNode} }

// LocalNode is the node that the model is computed for.
const LocalNode = "node-0"
