// Package workloads makes the clusters for measurements of the policy engine, and measures
// it: the start-up workloads of the benchmarks of Antrea's
// controller (same shapes and counts, see shapes.go), for a comparison with
// its figures.
//
// Objects are made from a fixed seed, so every process builds the same
// cluster. A measurement separates:
//
//   - the placement: Antrea's controller computes the policy of all nodes,
//     an Engine the model of one. EveryPodLocal makes the Engine compute every
//     group, policy and endpoint, for the comparison with Antrea; OneNode
//     is the work of an agent of such a cluster.
//   - engine or process: CPU and heap of the Engine alone, and CPU and peak RSS
//     of the whole process, which also makes and holds the objects. Antrea's
//     figures are of the whole process, which holds the objects in the caches
//     of its informers and in the fake API server that these read from.
//   - time or work: CPU-seconds depend on the machine, Work does not.
//
// The package is for tests and benchmarks; the agent may not import it. Its
// tests judge sampled packets of every workload by felixlike/policy/oracle, and assert
// by counted work, never by time, that cost grows with the result.
package workloads
