// Package property judges the real backends by the oracle, each by the same
// tests: random clusters and policies go through the policy engine, the managers,
// the renderer and the drivers into the kernel, or the Open vSwitch, of fresh
// network namespaces. Crafted packets of every protocol and family go through its
// FORWARD hook, or by the ports of its bridge: those of pods, the host's, and in
// Geneve that of the uplink. What comes out on the other side must be what the
// oracle allows, by the right port, whether it opens a connection, answers one, or
// belongs to one that came to be without policy.
package property
