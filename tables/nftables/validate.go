package nftables

import (
	"cmp"
	"errors"
	"fmt"

	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/tables"
	"github.com/felixlike/felixlike/tables/nftables/kernel"
)

// maxName is the longest name the kernel takes for a chain or a set
// (NFT_NAME_MAXLEN, which counts the closing NUL).
const maxName = 255

// validate checks the desired state of what was touched, and of all chains if
// something that rules refer to was redefined, and sets aside what is bad. It
// fails if that cannot be set aside.
func (t *Table) validate() error {
	if err := checkName(t.options.Table); err != nil {
		return &ObjectError{Object: "table", Name: t.options.Table, Err: err}
	}
	if t.recheck {
		t.touchReferrers()
	}
	t.touchBereft()
	for _, name := range t.touchedSets.sorted() {
		if s, ok := t.sets[name]; ok && t.quarantine.standing(kernel.Unit{Kind: kernel.SetUnit, Name: name}) == programmed {
			if err := t.validateSet(s); err != nil {
				return err
			}
		}
	}
	for _, name := range t.touchedChains.sorted() {
		c, ok := t.chains[name]
		if !ok || c.want == nil || t.quarantine.standing(kernel.Unit{Kind: kernel.ChainUnit, Name: name}) != programmed {
			continue
		}
		if bad := t.validateChain(c); bad != nil {
			if err := t.setAside(bad); err != nil {
				return err
			}
		}
	}
	return nil
}

// touchBereft touches what refers to something that is not wanted any more.
func (t *Table) touchBereft() {
	for name := range t.touchedChains {
		if c, ok := t.chains[name]; ok && c.want == nil && c.refs > 0 {
			t.touchReferrersOf(kernel.Unit{Kind: kernel.ChainUnit, Name: name})
		}
	}
	for name := range t.touchedSets {
		if s, ok := t.sets[name]; ok && !s.wanted && s.refs > 0 {
			t.touchReferrersOf(kernel.Unit{Kind: kernel.SetUnit, Name: name})
		}
	}
}

// touchReferrers touches everything that refers to something.
func (t *Table) touchReferrers() {
	for name, c := range t.chains {
		if c.want != nil {
			t.touchedChains.add(name)
		}
	}
	for name, s := range t.sets {
		if s.wanted && s.shape.Verdicts {
			t.touchedSets.add(name)
		}
	}
}

// validateChain returns what is wrong with a wanted chain, or nil.
func (t *Table) validateChain(c *chain) *fault {
	bad := c.about("")
	if bad.Err = cmp.Or(checkName(c.name), checkHook(c.want.Hook)); bad.Err != nil {
		bad.least = absent
		return &bad
	}
	for i, r := range c.want.Rules {
		if err := t.validateRule(c.want, r); err != nil {
			bad = c.about(tables.RuleName(i, r))
			bad.Err = err
			return &bad
		}
	}
	return nil
}

// validateRule checks one rule of a chain and that what it refers to is
// wanted.
func (t *Table) validateRule(c *tables.Chain, r tables.Rule) error {
	if err := checkRule(r); err != nil {
		return err
	}
	for _, m := range r.Matches {
		var err error
		switch m := m.(type) {
		case tables.MatchSet:
			err = t.checkSet(m.Set, m.Family, model.Addresses, model.Networks)
		case tables.MatchPortSet:
			err = t.checkSet(m.Set, m.Family, model.AddressPorts)
		case tables.MatchLoop:
			err = t.checkSet(m.Set, m.Family, model.Loops)
		}
		if err != nil {
			return err
		}
	}
	switch a := r.Action.(type) {
	case tables.Masquerade, tables.SourceNAT, tables.KeepSource:
		if c.Hook == nil || c.Hook.Type != tables.HookNAT || c.Hook.Point != tables.HookPostrouting {
			return fmt.Errorf("the action %q works only in a base chain of the nat type at postrouting", a)
		}
	case tables.Dispatch:
		s, ok := t.sets[a.Map]
		if !ok || !s.wanted || !s.shape.Verdicts {
			return fmt.Errorf("map %s is not wanted", a.Map)
		}
		if s.shape.Family != a.Family {
			return fmt.Errorf("map %s is of family %s, the rule of %s", a.Map, s.shape.Family, a.Family)
		}
	default:
		return t.checkTarget(r.Action)
	}
	return nil
}

// checkSet checks that a set is wanted, of the family and of one of the kinds.
func (t *Table) checkSet(name string, family model.Family, kinds ...model.GroupKind) error {
	s, ok := t.sets[name]
	if !ok || !s.wanted || s.shape.Verdicts {
		return fmt.Errorf("set %s is not wanted", name)
	}
	if s.shape.Family != family {
		return fmt.Errorf("set %s is of family %s, the match of %s", name, s.shape.Family, family)
	}
	for _, k := range kinds {
		if s.shape.Kind == k {
			return nil
		}
	}
	return fmt.Errorf("set %s holds %s, which the match cannot look up", name, s.shape.Kind)
}

// checkTarget checks that the chain an action leads to is wanted.
func (t *Table) checkTarget(a tables.Action) error {
	target := tables.Target(a)
	if target == "" {
		return nil
	}
	c, ok := t.chains[target]
	if !ok || c.want == nil {
		return fmt.Errorf("chain %s is not wanted", target)
	}
	if c.want.Hook != nil {
		return fmt.Errorf("chain %s is a base chain", target)
	}
	return nil
}

// validateSet sets aside what is wrong with a set.
func (t *Table) validateSet(s *set) error {
	bad := s.about("")
	if !s.wanted {
		if len(s.members.want) == 0 {
			return nil
		}
		bad.Err = errors.New("it has members, but is not wanted")
		return t.setAside(&bad)
	}
	if bad.Err = cmp.Or(checkName(s.name), checkShape(s.shape)); bad.Err != nil {
		return t.setAside(&bad)
	}
	_, adds := s.members.diff()
	switch {
	case t.recheck && s.shape.Verdicts:
		adds = s.members.sorted()
	case s.shape.Verdicts:
		adds = s.members.touched()
	}
	if s.ranges > 0 && len(adds) > 0 {
		if bad.Err = s.overlap(); bad.Err != nil {
			return t.setAside(&bad)
		}
	}
	for _, c := range adds {
		invalid := s.checkMember(c.Member)
		reason := invalid
		if reason == nil && s.shape.Verdicts {
			reason = t.checkVerdict(c.Verdict)
		}
		if reason == nil {
			continue
		}
		bad := s.about(c.String())
		bad.Err = reason
		if !s.shape.Verdicts {
			return t.setAside(&bad)
		}
		bad.Unit = kernel.Unit{Kind: kernel.EntryUnit, Name: s.name, Entry: c.Member}
		if invalid != nil {
			bad.least = absent // it cannot be an entry whatever the verdict is
		}
		if t.quarantine.standing(bad.Unit) > programmed {
			continue
		}
		if err := t.setAside(&bad); err != nil {
			return err
		}
	}
	return nil
}

func (t *Table) checkVerdict(a tables.Action) error {
	switch a.(type) {
	case tables.Accept, tables.Drop:
		return nil
	case tables.Jump, tables.Goto:
		return t.checkTarget(a)
	case nil:
		return errors.New("an entry needs a verdict")
	}
	return fmt.Errorf("%s is no verdict of a map", a)
}

// about returns a fault of the set, or of one of its members; Err is empty.
func (s *set) about(member string) fault {
	var f fault
	f.Object, f.Name, f.Rule, f.Unit = s.shape.Noun(), s.name, member, kernel.Unit{Kind: kernel.SetUnit, Name: s.name}
	return f
}

// about returns a fault of the chain, or of one of its rules; Err is empty.
func (c *chain) about(rule string) fault {
	var f fault
	f.Object, f.Name, f.Rule, f.Unit = "chain", c.name, rule, kernel.Unit{Kind: kernel.ChainUnit, Name: c.name}
	return f
}
