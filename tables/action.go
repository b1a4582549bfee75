package tables

import (
	"fmt"

	"github.com/felixlike/felixlike/model"
)

// Action is what a rule does with a packet that it matches. The set of actions
// is closed, as that of matches is.
type Action interface {
	isAction()
	// String renders the action canonically; it is part of the rule's hash.
	String() string
}

// Accept ends the base chain with an accept verdict.
type Accept struct{}

// Drop drops the packet silently.
type Drop struct{}

// Return goes back to the calling chain.
type Return struct{}

// Jump continues in another chain and comes back when that chain returns.
type Jump struct{ Chain string }

// Goto continues in another chain; when it returns, the packet comes back to
// the caller of this chain.
type Goto struct{ Chain string }

// SetMark replaces the bits of Mask in the packet mark by Value.
type SetMark struct{ Value, Mask uint32 }

// Masquerade rewrites the source to the address of the outgoing interface;
// for chains of the nat type only.
type Masquerade struct{}

// Dispatch looks an address of the packet up in a verdict map and carries out
// the verdict found; without one the packet goes on to the next rule. Drivers
// without verdict maps refuse it (their dispatch is a prefix tree of chains).
type Dispatch struct {
	Family model.Family
	Side   Side
	Map    string
}

func (Accept) isAction()     {}
func (Drop) isAction()       {}
func (Return) isAction()     {}
func (Jump) isAction()       {}
func (Goto) isAction()       {}
func (SetMark) isAction()    {}
func (Masquerade) isAction() {}
func (Dispatch) isAction()   {}

func (Accept) String() string     { return "accept" }
func (Drop) String() string       { return "drop" }
func (Return) String() string     { return "return" }
func (a Jump) String() string     { return "jump " + a.Chain }
func (a Goto) String() string     { return "goto " + a.Chain }
func (a SetMark) String() string  { return fmt.Sprintf("mark set %#x/%#x", a.Value, a.Mask) }
func (Masquerade) String() string { return "masquerade" }

func (a Dispatch) String() string {
	return fmt.Sprintf("ip%s %s vmap @%s", a.Family, a.Side, a.Map)
}
