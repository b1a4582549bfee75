package nftables

import "github.com/felixlike/felixlike/tables/nftables/kernel"

// unitState is the state that a unit should have in the kernel.
type unitState uint8

const (
	// programmed: as desired.
	programmed unitState = iota
	// kept: as the kernel has it now, unchanged.
	kept
	// closed: a chain has one rule, which drops; an entry leads to a drop.
	closed
	// absent: the kernel refuses even the closed state, so nothing may rely on the unit:
	// the chains that refer to it are closed, the entries that lead to it drop. The
	// kernel's version of it stays, unless it is an entry. A set is never closed, only
	// absent.
	absent
)

// fault is a refused object with the driver's reaction.
type fault struct {
	kernel.ObjectError
	// atMost is the highest state that the unit may have from now on.
	atMost unitState
	// removal says that the unit is not desired: its deletion is refused.
	removal bool
}
