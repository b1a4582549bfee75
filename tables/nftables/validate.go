package nftables

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/tables"
)

// maxName is the longest name the kernel takes for a chain or a set
// (NFT_NAME_MAXLEN, which counts the closing NUL).
const maxName = 255

// validate checks the desired state of what was touched, and of all chains if
// something that rules refer to was redefined. It joins all that is wrong.
func (t *Table) validate() error {
	if err := checkName(t.options.Table); err != nil {
		return &ObjectError{Object: "table", Name: t.options.Table, Err: err}
	}
	if t.recheck {
		t.touchReferrers()
	}
	var errs []error
	for _, name := range t.touchedChains.sorted() {
		if c, ok := t.chains[name]; ok {
			errs = append(errs, t.validateChain(c))
		}
	}
	for _, name := range t.touchedSets.sorted() {
		if s, ok := t.sets[name]; ok {
			errs = append(errs, t.validateSet(s))
		}
	}
	return errors.Join(errs...)
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

func (t *Table) validateChain(c *chain) error {
	bad := func(rule string, err error) error {
		return &ObjectError{Object: "chain", Name: c.name, Rule: rule, Err: err}
	}
	if c.want == nil {
		if c.refs > 0 {
			return bad("", fmt.Errorf("it is not wanted, but %s leads to it", t.referrer(c.name)))
		}
		return nil
	}
	if err := checkName(c.name); err != nil {
		return bad("", err)
	}
	if err := checkHook(c.want.Hook); err != nil {
		return bad("", err)
	}
	for i, r := range c.want.Rules {
		if err := t.validateRule(c.want, r); err != nil {
			return bad(ruleName(i, r), err)
		}
	}
	return nil
}

// ruleName names the rule at an index of its chain for people.
func ruleName(i int, r tables.Rule) string {
	if r.Comment == "" {
		return fmt.Sprintf("rule %d (%s)", i, r)
	}
	return fmt.Sprintf("rule %d (%s, %s)", i, r, r.Comment)
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
		}
		if err != nil {
			return err
		}
	}
	switch a := r.Action.(type) {
	case tables.Masquerade:
		if c.Hook == nil || c.Hook.Type != tables.HookNAT || c.Hook.Point != tables.HookPostrouting {
			return errors.New("masquerade works only in a base chain of the nat type at postrouting")
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

func (t *Table) validateSet(s *set) error {
	bad := func(member string, err error) error {
		return &ObjectError{Object: s.shape.noun(), Name: s.name, Rule: member, Err: err}
	}
	if !s.wanted {
		switch {
		case len(s.members.want) > 0:
			return bad("", errors.New("it has members, but is not wanted"))
		case s.refs > 0:
			return bad("", fmt.Errorf("it is not wanted, but %s names it", t.setReferrer(s.name)))
		}
		return nil
	}
	if err := checkName(s.name); err != nil {
		return bad("", err)
	}
	if err := s.shape.check(); err != nil {
		return bad("", err)
	}
	_, adds := s.members.diff()
	if t.recheck && s.shape.verdicts {
		adds = s.members.sorted()
	}
	for _, c := range adds {
		err := s.checkMember(c.member)
		if err == nil && s.shape.verdicts {
			err = t.checkVerdict(c.verdict)
		}
		if err != nil {
			return bad(c.String(), err)
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

// referrer names the first thing wanted that leads to the chain.
func (t *Table) referrer(target string) string {
	leads := func(r tables.Rule) bool { return tables.Target(r.Action) == target }
	if name := t.firstRule(leads); name != "" {
		return name
	}
	for _, name := range slices.Sorted(maps.Keys(t.sets)) {
		for _, c := range t.sets[name].members.sorted() {
			if tables.Target(c.verdict) == target {
				return fmt.Sprintf("map %s, %s", name, c)
			}
		}
	}
	return "something"
}

// setReferrer names the first wanted rule that names the set or map.
func (t *Table) setReferrer(set string) string {
	return cmp.Or(t.firstRule(func(r tables.Rule) bool { return namesSet(r, set) }), "something")
}

// firstRule names the first wanted rule for which is holds, or "".
func (t *Table) firstRule(is func(tables.Rule) bool) string {
	for _, name := range slices.Sorted(maps.Keys(t.chains)) {
		c := t.chains[name]
		if c.want == nil {
			continue
		}
		for i, r := range c.want.Rules {
			if is(r) {
				return fmt.Sprintf("chain %s, %s", name, ruleName(i, r))
			}
		}
	}
	return ""
}

func namesSet(r tables.Rule, set string) bool {
	for _, m := range r.Matches {
		switch m := m.(type) {
		case tables.MatchSet:
			if m.Set == set {
				return true
			}
		case tables.MatchPortSet:
			if m.Set == set {
				return true
			}
		}
	}
	d, ok := r.Action.(tables.Dispatch)
	return ok && d.Map == set
}
