// Package service turns Services and EndpointSlices into the ports that one node serves, incrementally. An Engine takes each change of a Service, an
// EndpointSlice or a node. Its Flush returns the changed ports as typed updates.
//
//	Service ------> [ parse ] --> spec ------+
//	                               |         v
//	                            claims --> evaluate --> Flush
//	EndpointSlice -> [ parse ] --> slice ----^
//
// A change of an EndpointSlice evaluates one Service. A change of a Service evaluates it, and the Services that claim an address and port of it. Only
// another zone of this node evaluates all of them.
//
// The semantics are those of kube-proxy 1.35, with two exceptions. An externalIP that belongs to a node or to another Service is refused. Source
// ranges of one family only admit nobody of the other.
//
// The package knows no kernel and does no I/O. It is tested by tables, and by a random test that compares an Engine with a new one.
package service
