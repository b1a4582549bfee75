// Package underlay finds out what nobody has to set: the datapath that this
// node's Open vSwitch can have, the interface with the node's address, and the
// MTU that a tunnel over it leaves to pods.
//
// It only reads, in the caller's network namespace, and decides nothing that is
// set. Asking for the kernel's datapath has the kernel load its module, where it
// has one. It is tested with real links in namespaces of its own.
package underlay
