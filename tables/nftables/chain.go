package nftables

import (
	"github.com/felixlike/felixlike/tables"
	"github.com/felixlike/felixlike/tables/nftables/kernel"
)

// chain is one chain by name: its desired and its observed state.
type chain struct {
	name     string
	desired  *tables.Chain // nil: not desired
	hashes   []string      // of the desired rules
	observed *kernel.Chain // nil: not in the kernel
	// claims reports that observed was read: its rules have the hashes that their comments claim. echoed are
	// the rules before that read, as the kernel echoed them.
	claims bool
	echoed []kernel.Rule
	rules  int // that the kernel had after the last commit
	refs   int // desired rules and verdicts that lead to the chain
	// replacement is programmed instead while the chain is closed, with its hashes.
	replacement       *tables.Chain
	replacementHashes []string
	// reopens says that the chain is closed in the kernel, and is to be opened.
	reopens bool
	// partial says that the kernel may have the chain without its rules: a load in
	// several transactions was refused after the one that made it.
	partial bool
	// changed is the count of changes (objects.changes) at its last change.
	changed uint64
}

// unused reports whether nothing is left to know about the chain.
func (c *chain) unused() bool { return c.desired == nil && c.observed == nil && c.refs == 0 }

// idle reports whether nothing can lead to the chain in the kernel.
func (c *chain) idle() bool { return c.observed == nil || c.partial }
