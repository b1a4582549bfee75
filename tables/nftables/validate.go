package nftables

import (
	"cmp"
	"errors"
	"fmt"

	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/tables"
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
		if s, ok := t.sets[name]; ok && t.quarantine.standing(unit{kind: setUnit, name: name}) == programmed {
			if err := t.validateSet(s); err != nil {
				return err
			}
		}
	}
	for _, name := range t.touchedChains.sorted() {
		c, ok := t.chains[name]
		if !ok || c.want == nil || t.quarantine.standing(unit{kind: chainUnit, name: name}) != programmed {
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
			t.touchReferrersOf(unit{kind: chainUnit, name: name})
		}
	}
	for name := range t.touchedSets {
		if s, ok := t.sets[name]; ok && !s.wanted && s.refs > 0 {
			t.touchReferrersOf(unit{kind: setUnit, name: name})
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
		if s.wanted && s.shape.verdicts {
			t.touchedSets.add(name)
		}
	}
}

// validateChain returns what is wrong with a wanted chain, or nil.
func (t *Table) validateChain(c *chain) *objectError {
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
		if !ok || !s.wanted || !s.shape.verdicts {
			return fmt.Errorf("map %s is not wanted", a.Map)
		}
		if s.shape.family != a.Family {
			return fmt.Errorf("map %s is of family %s, the rule of %s", a.Map, s.shape.family, a.Family)
		}
	default:
		return t.checkTarget(r.Action)
	}
	return nil
}

// checkSet checks that a set is wanted, of the family and of one of the kinds.
func (t *Table) checkSet(name string, family model.Family, kinds ...model.GroupKind) error {
	s, ok := t.sets[name]
	if !ok || !s.wanted || s.shape.verdicts {
		return fmt.Errorf("set %s is not wanted", name)
	}
	if s.shape.family != family {
		return fmt.Errorf("set %s is of family %s, the match of %s", name, s.shape.family, family)
	}
	for _, k := range kinds {
		if s.shape.kind == k {
			return nil
		}
	}
	return fmt.Errorf("set %s holds %s, which the match cannot look up", name, s.shape.kind)
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
		bad.Err, bad.removal = errors.New("it has members, but is not wanted"), false
		return t.setAside(&bad)
	}
	if bad.Err = cmp.Or(checkName(s.name), s.shape.check()); bad.Err != nil {
		return t.setAside(&bad)
	}
	_, adds := s.members.diff()
	switch {
	case t.recheck && s.shape.verdicts:
		adds = s.members.sorted()
	case s.shape.verdicts:
		adds = s.members.touched()
	}
	if s.ranges > 0 && len(adds) > 0 {
		if bad.Err = s.overlap(); bad.Err != nil {
			return t.setAside(&bad)
		}
	}
	for _, c := range adds {
		invalid := s.checkMember(c.member)
		reason := invalid
		if reason == nil && s.shape.verdicts {
			reason = t.checkVerdict(c.verdict)
		}
		if reason == nil {
			continue
		}
		bad := s.about(c.String())
		bad.Err = reason
		if !s.shape.verdicts {
			return t.setAside(&bad)
		}
		bad.unit = unit{entryUnit, s.name, c.member}
		if invalid != nil {
			bad.least = absent // it cannot be an entry whatever the verdict is
		}
		if t.quarantine.standing(bad.unit) > programmed {
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
