// Package scale measures the cost of an agent in a large cluster: CPU and memory of a
// separate process, from its start until everything from the API server is
// programmed. The API server is kubernetestest.Large, behind TLS and HTTP/2; the agent
// is the driver with the datastore kubernetes and the backend nftables, in a new network
// namespace. Open vSwitch is left out: its memory is not the agent's.
//
// A test holds a small cluster to bounds; BenchmarkAgent measures any size.
package scale
