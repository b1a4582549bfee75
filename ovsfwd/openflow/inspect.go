package openflow

import (
	"errors"
	"fmt"

	"antrea.io/libOpenflow/openflow15"
)

// Term is a field with the bits that a match compares, or that an action sets.
type Term struct {
	Field Field
	// Value and Mask have the field's width; Mask is nil if all bits count. They
	// must not be changed.
	Value, Mask []byte
}

// Terms returns what the match compares, in the order of the fields.
func (m Match) Terms() []Term {
	terms := make([]Term, len(m.terms))
	for i, t := range m.terms {
		terms[i] = t.exported()
	}
	return terms
}

func (t term) exported() Term { return Term{t.field, t.value, t.mask} }

// String writes the term as a match does, as in "reg0=0x1/0xffff".
func (t Term) String() string {
	return t.Field.spec().match + "=" + term{t.Field, t.Value, t.Mask}.valueString()
}

// Width is the number of bytes of the field's values.
func (f Field) Width() int { return f.spec().width }

// String returns the name that ovs-ofctl has for the field in a match.
func (f Field) String() string { return f.spec().match }

// Effect is an action taken apart, for whoever follows packets through flows: it
// is one of the types below, of which there are as many as shapes of actions.
type Effect interface{ isEffect() }

// SetEffect sets bits of a field.
type SetEffect struct{ Term }

// CopyEffect copies a whole field to another one.
type CopyEffect struct{ From, To Field }

// TTLEffect decrements the hop limit.
type TTLEffect struct{}

// OutputEffect sends the packet out: by Port, which may be PortNormal or
// PortIn, or if Register is not zero, by the port in there.
type OutputEffect struct {
	Port     uint32
	Register Field
}

// Ports of an OutputEffect that are none of the bridge's.
const (
	// PortNormal is ordinary MAC learning, PortIn the port that the packet came by.
	PortNormal uint32 = openflow15.P_NORMAL
	PortIn     uint32 = openflow15.P_IN_PORT
)

// GotoEffect continues in a later table, and does not come back.
type GotoEffect struct{ Table uint8 }

// ResubmitEffect goes through a table, and comes back.
type ResubmitEffect struct{ Table uint8 }

// CTEffect sends the packet through connection tracking.
type CTEffect struct{ CTSpec }

// CTClearEffect makes the packet untracked.
type CTClearEffect struct{}

// ConjunctionEffect says that dimension K (from 1) of N of a conjunction matches.
type ConjunctionEffect struct {
	ID   uint32
	K, N uint8
}

// LearnEffect leaves a flow behind.
type LearnEffect struct{ LearnSpec }

func (SetEffect) isEffect()         {}
func (CopyEffect) isEffect()        {}
func (TTLEffect) isEffect()         {}
func (OutputEffect) isEffect()      {}
func (GotoEffect) isEffect()        {}
func (ResubmitEffect) isEffect()    {}
func (CTEffect) isEffect()          {}
func (CTClearEffect) isEffect()     {}
func (ConjunctionEffect) isEffect() {}
func (LearnEffect) isEffect()       {}

// EffectOf takes an action apart. One that this package has not made is an error.
func EffectOf(a Action) (Effect, error) {
	switch a := a.(type) {
	case setField:
		return SetEffect{a.exported()}, nil
	case copyField:
		return CopyEffect{a.from, a.to}, nil
	case decTTL:
		return TTLEffect{}, nil
	case output:
		return OutputEffect{Port: uint32(a)}, nil
	case outputRegister:
		return OutputEffect{Register: Field(a)}, nil
	case gotoTable:
		return GotoEffect{uint8(a)}, nil
	case resubmit:
		return ResubmitEffect{uint8(a)}, nil
	case ct:
		return CTEffect{a.CTSpec}, nil
	case ctClear:
		return CTClearEffect{}, nil
	case conjunction:
		return ConjunctionEffect{a.id, a.k, a.n}, nil
	case learn:
		return LearnEffect{a.LearnSpec}, nil
	case nil:
		return nil, errors.New("no action")
	}
	return nil, fmt.Errorf("unknown action %s", a)
}
