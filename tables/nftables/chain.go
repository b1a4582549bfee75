package nftables

import (
	"slices"

	nft "github.com/google/nftables"
	"golang.org/x/sys/unix"

	"github.com/felixlike/felixlike/tables"
)

// chain is one chain by name: what is wanted of it, what the kernel holds of
// it, and how many wanted rules and verdicts lead to it.
type chain struct {
	name   string
	want   *tables.Chain // nil: not wanted
	hashes []string      // of the wanted rules
	have   *kernelChain  // nil: not in the kernel
	held   int           // the rules that the kernel had after the last commit
	refs   int
	// standIn is what is programmed instead while the chain stands closed, with its
	// hashes.
	standIn       *tables.Chain
	standInHashes []string
	// reopens tells that it stands closed in the kernel, but is not to any more.
	reopens bool
	// hollow tells that an earlier transaction of a load that was refused has made
	// it, so that it may be in the kernel without its rules.
	hollow bool
	// changed is the count of changes at which it was last wanted otherwise.
	changed uint64
}

// kernelChain is a chain as the kernel holds it.
type kernelChain struct {
	base  baseHook
	rules []kernelRule
	// claims tells that it was read, so that the hashes of its rules are claims of
	// their comments; echoed are the rules that the kernel had before by its echo.
	claims bool
	echoed []kernelRule
	// uses counts its rules and what led to it, as long as it was just read.
	uses uint32
}

// kernelRule is a rule as the kernel holds it; hash is empty if it is not ours.
type kernelRule struct {
	hash   string
	handle uint64
	// digest is that of the rule's body as the kernel returns it.
	digest uint64
}

// baseHook is a hook in the kernel's terms. The zero value stands for a chain
// that is no base chain.
type baseHook struct {
	chainType string
	hook      uint32
	priority  int32
	policy    uint32
}

// base returns the wanted hook in the kernel's terms.
func base(h *tables.Hook) baseHook {
	if h == nil {
		return baseHook{}
	}
	b := baseHook{chainType: h.Type.String(), priority: h.Priority, policy: uint32(nft.ChainPolicyAccept)}
	switch h.Point {
	case tables.HookForward:
		b.hook = unix.NF_INET_FORWARD
	case tables.HookPostrouting:
		b.hook = unix.NF_INET_POST_ROUTING
	case tables.HookPrerouting:
		b.hook = unix.NF_INET_PRE_ROUTING
	}
	return b
}

// hooked is the hook without what can be changed of it.
func (b baseHook) hooked() baseHook {
	b.policy = 0
	return b
}

// UpdateChain wants the chain to be exactly as given.
func (t *Table) UpdateChain(want tables.Chain) {
	c := t.chain(want.Name)
	hashes := want.Hashes()
	if c.want != nil && slices.Equal(c.hashes, hashes) && base(c.want.Hook) == base(want.Hook) {
		return
	}
	if c.want != nil {
		t.referAll(c.want.Rules, -1)
	}
	// Nothing may lead to a base chain, so who leads to this one is asked again.
	t.recheck = t.recheck || want.Hook != nil && c.refs > 0
	t.referAll(want.Rules, +1)
	c.want, c.hashes = &want, hashes
	c.changed = t.change()
	t.touchedChains.add(want.Name)
}

// RemoveChain no longer wants the chain.
func (t *Table) RemoveChain(name string) {
	c, ok := t.chains[name]
	if !ok || c.want == nil {
		return
	}
	t.referAll(c.want.Rules, -1)
	c.want, c.hashes = nil, nil
	c.changed = t.change()
	t.touchedChains.add(name)
}

// chain returns the named chain, new if need be.
func (t *Table) chain(name string) *chain {
	c, ok := t.chains[name]
	if !ok {
		c = &chain{name: name}
		t.chains[name] = c
	}
	return c
}

// referAll counts, or with -1 discounts, what the rules refer to.
func (t *Table) referAll(rules []tables.Rule, n int) {
	for _, r := range rules {
		for _, m := range r.Matches {
			if name := tables.SetOf(m); name != "" {
				t.referSet(name, n)
			}
		}
		t.refer(r.Action, n)
	}
}

// refer counts, or with -1 discounts, what an action refers to.
func (t *Table) refer(a tables.Action, n int) {
	if d, ok := a.(tables.Dispatch); ok {
		t.referSet(d.Map, n)
		return
	}
	target := tables.Target(a)
	if target == "" {
		return
	}
	c := t.chain(target)
	c.refs += n
	if c.unused() {
		delete(t.chains, target)
	}
}

func (t *Table) referSet(name string, n int) {
	s := t.set(name)
	s.refs += n
	if s.unused() {
		delete(t.sets, name)
	}
}

// unused reports whether nothing is left to know about the chain.
func (c *chain) unused() bool { return c.want == nil && c.have == nil && c.refs == 0 }
