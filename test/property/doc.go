// Package property judges the real backends by the oracle, each by the same
// tests: random clusters and policies go through the policy engine, the managers,
// the renderer and the drivers into the kernel, or the Open vSwitch, of fresh
// network namespaces. Crafted packets of every protocol and family go through its
// FORWARD hook, or by the ports of its bridge: those of pods, the host's, and in
// Geneve that of the uplink. The packets that arrive must be those that the
// oracle allows, by the right port: packets that open a connection, answer one, or
// belong to one that opened without policy.
//
// A test keeps to one processor, so tests run side by side, one on each. A test that
// measures times or memory runs alone, without t.Parallel.
package property
