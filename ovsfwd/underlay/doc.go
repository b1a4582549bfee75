// Package underlay detects settings that users may leave out: the datapath that this
// node's Open vSwitch can have, the interface with the node's address, and the MTU
// that a tunnel over it leaves to pods.
//
// It only reads, in the caller's network namespace, and decides nothing that is
// set. Asking for the kernel's datapath has the kernel load its module, where it
// has one. It is tested with real links in namespaces of its own.
//
// "datapath: auto" is the kernel's datapath if its module answers and ovs-vswitchd
// offers it, else the userspace one, with a warning. A bridge keeps the datapath that it
// has. The uplink is the interface with the node's InternalIP, or else of the default
// route. The MTU of pods is the uplink's less 50 bytes (geneve, vxlan), 70 over IPv6, or 42 (gre with a
// key). The agent looks up uplink and MTU again at every resync. Status shows the values
// and the reasons, and "felixlike-agent config" prints them beside the settings.
package underlay
