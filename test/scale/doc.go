// Package scale measures what an agent costs in a large cluster: CPU and memory of a
// process of its own, from its start until everything that the API server has is
// programmed. The API server is kubernetestest.Large, behind TLS and HTTP/2; the agent
// is the driver with the datastore kubernetes and the backend nftables, in a network
// namespace of its own. Open vSwitch is left out: its memory is not the agent's.
//
// A test holds a small cluster to bounds; BenchmarkAgent measures any size.
package scale
