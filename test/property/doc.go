// Package property judges the real backends by the oracle, each by the same
// tests: random clusters and policies go through the policy engine, the managers,
// the renderer and the drivers into the kernel of fresh network namespaces, and
// crafted packets of every protocol and family go through its FORWARD hook. What
// comes out on the other side must be what the oracle allows, whether it opens a
// connection, answers one, or belongs to one that came to be without policy.
package property
