// Package property judges the real nftables backend by the oracle: random
// clusters and policies go through the policy engine, the managers, the
// renderer and the driver into the kernel of a fresh network namespace, and
// crafted packets of every protocol and family go through its FORWARD hook.
// What comes out on the other side must be what the oracle allows.
package property
