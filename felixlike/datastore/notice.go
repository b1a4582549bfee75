package datastore

import "github.com/felixlike/felixlike/model"

// Notice is a problem that users should see at the object. Its reason identifies it, so it holds nothing that
// changes all the time.
type Notice struct {
	model.Problem
	// Kind is one word for the effect, such as "TrafficDropped". Without one the notice becomes no Event.
	Kind string
	// Adds is set if pods can be added to a node that is not ready for this reason.
	Adds bool
	// Known says which nodes know the problem.
	Known Known
}

// Known says which nodes know of a problem.
type Known uint8

// The nodes that know a problem: this one alone, those that the object matters to, or all.
const (
	KnownHere Known = iota
	KnownToSome
	KnownToAll
)
