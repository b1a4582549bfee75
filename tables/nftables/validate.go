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

// validator checks the desired state, and quarantines objects that cannot be programmed.
type validator struct {
	*objects
	quarantine *quarantine
}

// validate checks the dirty objects, and all chains if a rule's reference was redefined, and quarantines the
// faulty ones. It fails if an object cannot be quarantined.
func (v *validator) validate() error {
	if err := checkName(v.table); err != nil {
		return &ObjectError{Object: "table", Name: v.table, Err: err}
	}
	if v.recheck {
		v.markReferrers()
	}
	v.markOrphans()
	for _, name := range v.dirtySets.sorted() {
		if s, ok := v.sets[name]; ok && v.quarantine.state(kernel.Unit{Kind: kernel.SetUnit, Name: name}) == programmed {
			if err := v.validateSet(s); err != nil {
				return err
			}
		}
	}
	for _, name := range v.dirtyChains.sorted() {
		c, ok := v.chains[name]
		if !ok || c.desired == nil || v.quarantine.state(kernel.Unit{Kind: kernel.ChainUnit, Name: name}) != programmed {
			continue
		}
		if bad := v.validateChain(c); bad != nil {
			if err := v.quarantine.add(bad); err != nil {
				return err
			}
		}
	}
	return nil
}

// markOrphans marks the objects that refer to an object that is no longer desired.
func (v *validator) markOrphans() {
	for name := range v.dirtyChains {
		if c, ok := v.chains[name]; ok && c.desired == nil && c.refs > 0 {
			v.markReferrersOf(kernel.Unit{Kind: kernel.ChainUnit, Name: name})
		}
	}
	for name := range v.dirtySets {
		if s, ok := v.sets[name]; ok && !s.desired && s.refs > 0 {
			v.markReferrersOf(kernel.Unit{Kind: kernel.SetUnit, Name: name})
		}
	}
}

// markReferrers marks everything that refers to something.
func (v *validator) markReferrers() {
	for name, c := range v.chains {
		if c.desired != nil {
			v.dirtyChains.add(name)
		}
	}
	for name, s := range v.sets {
		if s.desired && s.shape.Verdicts {
			v.dirtySets.add(name)
		}
	}
}

// validateChain returns the fault of a desired chain, or nil.
func (v *validator) validateChain(c *chain) *fault {
	bad := c.about("")
	if bad.Err = cmp.Or(checkName(c.name), checkHook(c.desired.Hook)); bad.Err != nil {
		bad.atMost = absent
		return &bad
	}
	for i, r := range c.desired.Rules {
		if err := v.validateRule(c.desired, r); err != nil {
			bad = c.about(tables.RuleName(i, r))
			bad.Err = err
			return &bad
		}
	}
	return nil
}

// validateRule checks one rule of a chain and that its references are desired.
func (v *validator) validateRule(c *tables.Chain, r tables.Rule) error {
	if err := checkRule(r); err != nil {
		return err
	}
	for _, m := range r.Matches {
		var err error
		switch m := m.(type) {
		case tables.MatchSet:
			err = v.checkSet(m.Set, m.Family, model.Addresses, model.Networks)
		case tables.MatchPortSet:
			err = v.checkSet(m.Set, m.Family, model.AddressPorts)
		case tables.MatchLoop:
			err = v.checkSet(m.Set, m.Family, model.Loops)
		case tables.MatchSender:
			err = v.checkSet(m.Set, m.Family, model.Senders)
		case tables.MatchGrant:
			err = v.checkGrant(m)
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
		s, ok := v.sets[a.Map]
		if !ok || !s.desired || !s.shape.Verdicts {
			return fmt.Errorf("map %s is not wanted", a.Map)
		}
		if s.shape.Family != a.Family {
			return fmt.Errorf("map %s is of family %s, the rule of %s", a.Map, s.shape.Family, a.Family)
		}
	default:
		return v.checkTarget(r.Action)
	}
	return nil
}

// checkGrant checks that the maps and the set of a match on a grant are desired.
func (v *validator) checkGrant(m tables.MatchGrant) error {
	maps := []string{m.Lists}
	if m.Peers != "" {
		maps = append(maps, m.Peers)
	}
	for _, name := range maps {
		if s, ok := v.sets[name]; !ok || !s.desired || !s.shape.Numbers || s.shape.Family != m.Family {
			return fmt.Errorf("map %s of numbers, of family %s, is not wanted", name, m.Family)
		}
	}
	kind := model.Grants
	if m.AnyPort {
		kind = model.AnyPortGrants
	}
	return v.checkSet(m.Grants, model.IPv6, kind)
}

// checkSet checks that a set is desired, of the family and of one of the kinds.
func (v *validator) checkSet(name string, family model.Family, kinds ...model.GroupKind) error {
	s, ok := v.sets[name]
	if !ok || !s.desired || s.shape.Verdicts || s.shape.Numbers {
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

// checkTarget checks that the chain an action leads to is desired.
func (v *validator) checkTarget(a tables.Action) error {
	target := tables.Target(a)
	if target == "" {
		return nil
	}
	c, ok := v.chains[target]
	if !ok || c.desired == nil {
		return fmt.Errorf("chain %s is not wanted", target)
	}
	if c.desired.Hook != nil {
		return fmt.Errorf("chain %s is a base chain", target)
	}
	return nil
}

// validateSet quarantines the faulty parts of a set.
func (v *validator) validateSet(s *set) error {
	bad := s.about("")
	if !s.desired {
		if len(s.members.desired) == 0 {
			return nil
		}
		bad.Err = errors.New("it has members, but is not wanted")
		return v.quarantine.add(&bad)
	}
	if bad.Err = cmp.Or(checkName(s.name), checkShape(s.shape)); bad.Err != nil {
		return v.quarantine.add(&bad)
	}
	_, adds := s.members.diff()
	switch {
	case v.recheck && s.shape.Verdicts:
		adds = s.members.sorted()
	case s.shape.Verdicts:
		adds = s.members.dirty()
	}
	if s.ranges > 0 && len(adds) > 0 {
		if bad.Err = s.overlap(); bad.Err != nil {
			return v.quarantine.add(&bad)
		}
	}
	for _, c := range adds {
		invalid := s.checkMember(c.Member)
		reason := invalid
		if reason == nil && s.shape.Verdicts {
			reason = v.checkVerdict(c.Verdict)
		}
		if _, number := c.Verdict.(tables.Number); reason == nil && number != s.shape.Numbers {
			reason = errors.New("only the entries of a map of numbers have numbers")
		}
		if reason == nil {
			continue
		}
		bad := s.about(c.String())
		bad.Err = reason
		if !s.shape.Verdicts {
			return v.quarantine.add(&bad)
		}
		bad.Unit = kernel.Unit{Kind: kernel.EntryUnit, Name: s.name, Entry: c.Member}
		if invalid != nil {
			bad.atMost = absent // no verdict makes it an entry
		}
		if v.quarantine.state(bad.Unit) > programmed {
			continue
		}
		if err := v.quarantine.add(&bad); err != nil {
			return err
		}
	}
	return nil
}

func (v *validator) checkVerdict(a tables.Action) error {
	switch a.(type) {
	case tables.Accept, tables.Drop:
		return nil
	case tables.Jump, tables.Goto:
		return v.checkTarget(a)
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
