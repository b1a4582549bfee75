package datastore

import "github.com/felixlike/felixlike/model"

// Notice is a problem that users should be told of where they look at the object.
// Its reason is part of what it is: it has nothing in it that changes all the time.
type Notice struct {
	model.Problem
	// Kind says in one word, as "TrafficDropped", what it comes to.
	Kind string
	// Known says who else knows.
	Known Known
}

// Known says which nodes know of a problem.
type Known uint8

// The nodes that know: this one alone, whoever the object matters to, or all.
const (
	KnownHere Known = iota
	KnownToSome
	KnownToAll
)
