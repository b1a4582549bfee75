package workloads

import (
	"fmt"
	"slices"

	"github.com/felixlike/felixlike/felixlike/policy"
	"github.com/felixlike/felixlike/felixlike/policy/oracle"
)

// Workload is a start-up workload: a cluster of a certain shape and size.
type Workload struct {
	Name string
	// Units is the number of repetitions of the shape: namespaces, or pods, or pairs
	// of pods.
	Units int
	// Antrea are the figures of Antrea's benchmark of the name.
	Antrea Figures
	build  func(b *builder, unit int)
}

// Figures are those of another program for a workload: CPU-seconds and peak
// RSS of its whole process, on a machine of two virtual cores like those that
// this repository is measured on. Shared machines vary: compare ratios.
type Figures struct {
	CPUSeconds  float64 `json:"cpuSeconds"`
	PeakRSSMegs float64 `json:"peakRSSMegabytes"`
}

// All returns the workloads in the sizes of Antrea's benchmarks.
func All() []Workload {
	return []Workload{
		{"SmallNamespaces", 25_000, Figures{7.1, 1465}, smallNamespace},
		{"LargeNamespaces", 100, Figures{2.0, 704}, largeNamespace},
		{"OneNamespace", 10_000, Figures{0.5, 204}, oneNamespace},
		{"NetpolPerPod", 5_000, Figures{15.3, 204}, pair},
		{"ClusterScoped", 1_000, Figures{1.9, 644}, companyNamespace},
	}
}

// Named returns the workload of a name.
func Named(name string) (Workload, error) {
	all := All()
	i := slices.IndexFunc(all, func(w Workload) bool { return w.Name == name })
	if i < 0 {
		return Workload{}, fmt.Errorf("no workload is named %q", name)
	}
	return all[i], nil
}

// Scaled returns the workload with another number of units.
func (w Workload) Scaled(units int) Workload {
	w.Units = units
	return w
}

// Objects makes the objects of the cluster; the same ones each time.
func (w Workload) Objects(p Placement) *oracle.Cluster {
	b := newBuilder(p)
	for unit := range w.Units {
		w.build(b, unit)
	}
	return &b.cluster
}

// Load hands the objects to an engine in the order of Antrea's benchmarks:
// namespaces, pods, policies.
func Load(e *policy.Engine, c *oracle.Cluster) error {
	for _, n := range c.Namespaces {
		e.SetNamespace(n)
	}
	for _, p := range c.Pods {
		if problems := e.SetPod(p); len(problems) > 0 {
			return problems[0]
		}
	}
	for _, p := range c.Policies {
		if problems := e.SetNetworkPolicy(p); len(problems) > 0 {
			return problems[0]
		}
	}
	return nil
}
