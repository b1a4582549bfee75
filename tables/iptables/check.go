package iptables

import (
	"errors"
	"fmt"
	"strings"

	"github.com/felixlike/felixlike/tables"
)

// validate checks the wanted chains that were touched, or all if something that
// rules refer to was redefined, and sets those aside that are wrong. A base
// chain cannot be: it sees all packets of the host, so it can neither stand
// closed nor be left out. It is an error then, and nothing changes.
func (t *Table) validate() error {
	names := map[string]bool{}
	for name := range t.touched {
		names[name] = true
	}
	for name, r := range t.refused {
		names[name] = names[name] || r.next.IsZero()
	}
	if t.recheck {
		for name := range t.chains {
			names[name] = true
		}
	}
	var errs []error
	for _, name := range sorted(names) {
		c := t.chains[name]
		if !names[name] || c == nil || c.want == nil {
			continue
		}
		rule, err := t.checkChain(c)
		switch r := t.refused[name]; {
		case err != nil && c.want.Hook != nil:
			errs = append(errs, &tables.ObjectError{Object: "chain", Name: name, Rule: rule, Err: err})
		case err != nil:
			t.reject(name, rule, err)
		case r != nil && r.next.IsZero():
			t.forgive(name)
		}
	}
	if len(errs) > 0 {
		return errors.Join(errs...)
	}
	t.recheck = false
	return nil
}

// checkChain returns what is wrong with a chain, and with which of its rules.
func (t *Table) checkChain(c *chain) (rule string, err error) {
	if err := checkName(c.name, MaxName); err != nil {
		return "", err
	}
	if h := c.want.Hook; h != nil {
		if _, err := entryOf(*h); err != nil {
			return "", err
		}
	}
	for i, r := range c.want.Rules {
		if err := t.checkRule(c, r); err != nil {
			return tables.RuleName(i, r), err
		}
	}
	return "", nil
}

func (t *Table) checkRule(c *chain, r tables.Rule) error {
	if err := errors.Join(r.Check(), checkText(r), t.checkSets(r)); err != nil {
		return err
	}
	switch r.Action.(type) {
	case tables.SetMarkAndReturn:
		return fmt.Errorf("the action %q works only in the nftables driver", r.Action)
	case tables.Masquerade, tables.KeepSource:
		if c.want.Hook == nil || c.want.Hook.Type != tables.HookNAT {
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
	switch to := t.chains[target]; {
	case to == nil || to.want == nil:
		return fmt.Errorf("chain %s is not wanted", target)
	case to.want.Hook != nil:
		return fmt.Errorf("chain %s is a base chain", target)
	}
	return nil
}

func (t *Table) checkSets(r tables.Rule) error {
	for _, m := range r.Matches {
		name := tables.SetOf(m)
		if name == "" {
			continue
		}
		if err := checkName(name, len(name)); err != nil {
			return fmt.Errorf("set %s: %w", name, err)
		}
		if bad, ok := t.badSets[name]; ok {
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
