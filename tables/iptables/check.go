package iptables

import (
	"errors"
	"fmt"
	"strings"

	"github.com/felixlike/felixlike/tables"
)

// validator checks desired chains before anything is written.
type validator struct {
	*objects
	quarantine *quarantine
}

// validate checks the dirty chains, or all if an object that rules refer to has changed,
// and quarantines the wrong ones. A wrong base chain is an error, and nothing changes: it
// sees all packets of the host, so it can neither be closed nor be left out.
func (v *validator) validate() error {
	names := map[string]bool{}
	for name := range v.dirty {
		names[name] = true
	}
	for name, r := range v.quarantine.refused {
		names[name] = names[name] || r.Next.IsZero()
	}
	if v.recheck {
		for name := range v.chains {
			names[name] = true
		}
	}
	var errs []error
	for _, name := range sorted(names) {
		c := v.chains[name]
		if !names[name] || c == nil || c.desired == nil {
			continue
		}
		rule, err := v.checkChain(c)
		switch r := v.quarantine.refused[name]; {
		case err != nil && c.desired.Hook != nil:
			errs = append(errs, &tables.ObjectError{Object: "chain", Name: name, Rule: rule, Err: err})
		case err != nil:
			v.quarantine.reject(name, rule, err)
		case r != nil && r.Next.IsZero():
			v.quarantine.release(name)
		}
	}
	if len(errs) > 0 {
		return errors.Join(errs...)
	}
	v.recheck = false
	return nil
}

// checkChain returns the error of a chain, and the rule that has it.
func (v *validator) checkChain(c *chain) (rule string, err error) {
	if err := checkName(c.name, MaxName); err != nil {
		return "", err
	}
	if h := c.desired.Hook; h != nil {
		if _, err := entryOf(*h); err != nil {
			return "", err
		}
	}
	for i, r := range c.desired.Rules {
		if err := v.checkRule(c, r); err != nil {
			return tables.RuleName(i, r), err
		}
	}
	return "", nil
}

func (v *validator) checkRule(c *chain, r tables.Rule) error {
	if err := errors.Join(r.Check(), checkText(r), v.checkSets(r)); err != nil {
		return err
	}
	switch r.Action.(type) {
	case tables.SetMarkAndReturn, tables.NoTrack:
		return fmt.Errorf("the action %q works only in the nftables driver", r.Action)
	case tables.Masquerade, tables.KeepSource:
		if c.desired.Hook == nil || c.desired.Hook.Type != tables.HookNAT {
			return fmt.Errorf("the action %q works only in a base chain of the nat type", r.Action)
		}
	}
	target := tables.Target(r.Action)
	if target == "" {
		return nil
	}
	if err := checkName(target, MaxName); err != nil {
		return fmt.Errorf("chain %s: %w", target, err)
	}
	switch to := v.chains[target]; {
	case to == nil || to.desired == nil:
		return fmt.Errorf("chain %s is not wanted", target)
	case to.desired.Hook != nil:
		return fmt.Errorf("chain %s is a base chain", target)
	}
	return nil
}

func (v *validator) checkSets(r tables.Rule) error {
	for _, m := range r.Matches {
		name := tables.SetOf(m)
		if name == "" {
			continue
		}
		if err := checkName(name, len(name)); err != nil {
			return fmt.Errorf("set %s: %w", name, err)
		}
		if bad, ok := v.quarantine.sets[name]; ok {
			return &badSetError{name, bad.Reason}
		}
	}
	return nil
}

// checkName accepts names that stand in a command without quotes.
func checkName(name string, longest int) error {
	switch {
	case name == "":
		return errors.New("the name is empty")
	case len(name) > longest:
		return fmt.Errorf("the name is too long: %d characters of at most %d", len(name), longest)
	}
	for _, r := range name {
		if (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && !strings.ContainsRune("-_./", r) {
			return fmt.Errorf("the name has a character %q that iptables does not take", r)
		}
	}
	return nil
}
