package maps

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/felixlike/felixlike/tables"
	"github.com/felixlike/felixlike/tables/nftables/kernel"
	"github.com/felixlike/felixlike/tables/nftables/watch"
)

// learn reads what may differ: the whole table if nothing is known, else what foreign changes name.
func (t *Table) learn(result *tables.Result) error {
	changes := t.log.Take()
	if t.synced && changes.Empty() {
		return nil
	}
	if t.synced && !changes.NeedFullRead() {
		if done, err := t.reread(changes, result); done || err != nil {
			return err
		}
	}
	result.FullRead = true
	t.notePending()
	generation, err := t.conn.Generation()
	if err != nil {
		return err
	}
	changes.Merge(t.log.BeginRead(generation))
	table, err := t.conn.ReadTable(t.options.Table)
	if err != nil {
		return err
	}
	t.state = state{exists: table.Exists}
	if !table.Exists {
		t.forget()
		if !t.pending.table {
			t.repaired(result, "table", t.options.Table, "deleted", changes)
		}
		t.synced = true
		return nil
	}
	if err := t.readAll(table.Dormant, changes, result); err != nil {
		return err
	}
	if t.state.rebuild != "" {
		t.forget()
		if !t.pending.table {
			t.repaired(result, "table", t.options.Table, t.state.rebuild, changes)
		}
	}
	t.synced = true
	return nil
}

// pending are own changes that the kernel may not have, because an Apply has failed or comes only now. A full read finds them, and
// must not take them for foreign changes. Repairs that were reported, and could not be written, are among them.
type pending struct {
	table        bool
	chains, sets map[string]bool
	keys         map[string]map[string]bool
}

// notePending remembers the changes that are not written yet. A full read forgets them.
func (t *Table) notePending() {
	p := &t.pending
	if p.chains == nil {
		*p = pending{chains: map[string]bool{}, sets: map[string]bool{}, keys: map[string]map[string]bool{}}
	}
	p.table = p.table || !t.state.exists || t.state.rebuild != ""
	for _, name := range t.state.chains {
		p.chains[name] = true
	}
	for _, c := range t.chains {
		if c.dirty {
			p.chains[c.Name] = true
		}
	}
	for _, name := range t.state.sets {
		p.sets[name] = true
	}
	for _, s := range t.sets {
		if !s.exists {
			p.sets[s.Name] = true
		}
		for key := range s.dirty {
			if p.keys[s.Name] == nil {
				p.keys[s.Name] = map[string]bool{}
			}
			p.keys[s.Name][key] = true
		}
	}
}

// forget records that the kernel has nothing.
func (t *Table) forget() {
	for _, c := range t.chains {
		c.exists, c.dirty = false, true
	}
	for _, s := range t.sets {
		s.exists = false
		s.clean()
	}
}

func (t *Table) readAll(dormant bool, changes watch.Changes, result *tables.Result) error {
	types, err := t.conn.ReadTypes(t.options.Table)
	if err != nil {
		return err
	}
	chains, err := t.conn.ReadRules(t.options.Table)
	if err != nil {
		return err
	}
	if t.state.rebuild = t.wrong(dormant, types, chains); t.state.rebuild != "" {
		return nil
	}
	for _, name := range slices.Sorted(maps.Keys(chains)) {
		if t.chains[name] == nil {
			t.state.chains = append(t.state.chains, name)
			if !t.pending.chains[name] {
				t.repaired(result, "chain", name, "foreign", changes)
			}
		}
	}
	for _, c := range t.sortedChains() {
		if err := t.compareChain(c, chains[c.Name]); err != nil {
			return err
		}
		if c.dirty && !t.pending.chains[c.Name] {
			t.repaired(result, "chain", c.Name, "changed", changes)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(types)) {
		if t.sets[name] == nil {
			t.state.sets = append(t.state.sets, name)
			if !t.pending.sets[name] {
				t.repaired(result, "set", name, "foreign", changes)
			}
		}
	}
	for _, s := range t.sortedSets() {
		if _, s.exists = types[s.Name]; !s.exists {
			s.clean()
			if !t.pending.sets[s.Name] {
				t.repaired(result, "set", s.Name, "deleted", changes)
			}
		} else if err := t.readSet(s, changes, result); err != nil {
			return err
		}
	}
	return nil
}

// wrong says what the plan cannot mend in place: the table is made anew, in one transaction.
func (t *Table) wrong(dormant bool, types map[string]kernel.LargeType, chains map[string]*kernel.Chain) string {
	if dormant {
		return "made dormant"
	}
	for name, s := range t.sets {
		if found, ok := types[name]; ok && found != kernel.TypeOf(&s.LargeSet) {
			return fmt.Sprintf("set %s has another type", name)
		}
	}
	for name, found := range chains {
		want := kernel.BaseHook{}
		if c := t.chains[name]; c != nil {
			want = kernel.BaseOf(c.Hook)
		}
		if found.Base != want {
			return fmt.Sprintf("chain %s has another hook", name)
		}
	}
	return ""
}

// compareChain compares the rules of a chain with the kernel's, by their hashes and by what the kernel says of their bodies.
func (t *Table) compareChain(c *chain, found *kernel.Chain) error {
	c.exists = found != nil
	if c.dirty = found == nil || len(found.Rules) != len(c.Rules); c.dirty {
		return nil
	}
	for i, r := range found.Rules {
		digest, err := t.digests.Predict(c.Rules[i])
		if err != nil {
			return fmt.Errorf("chain %s, rule %d: %w", c.Name, i+1, err)
		}
		c.dirty = c.dirty || r.Hash != c.hashes[i] || r.Digest != digest
	}
	return nil
}

func (t *Table) readSet(s *set, changes watch.Changes, result *tables.Result) error {
	differs, err := s.read(t.conn, t.options.Table)
	if err != nil {
		return fmt.Errorf("read elements of set %s of inet %s: %w", s.Name, t.options.Table, err)
	}
	if differs && !t.pending.explains(s) {
		t.repaired(result, "set", s.Name, "elements changed", changes)
	}
	return nil
}

// explains reports whether all differences of a set are pending.
func (p *pending) explains(s *set) bool {
	if p.sets[s.Name] {
		return true
	}
	for key := range s.dirty {
		if !p.keys[s.Name][key] {
			return false
		}
	}
	return true
}

// reread reads the chains and sets of the changes. It reports false if that is not enough.
func (t *Table) reread(changes watch.Changes, result *tables.Result) (bool, error) {
	for _, name := range slices.Sorted(maps.Keys(changes.Chains)) {
		c := t.chains[name]
		found, err := t.conn.ReadChain(t.options.Table, name)
		if err != nil {
			return false, err
		}
		if c == nil || found == nil || found.Base != kernel.BaseOf(c.Hook) {
			return false, nil
		}
		if err := t.compareChain(c, found); err != nil {
			return false, err
		}
		if c.dirty {
			t.repaired(result, "chain", name, "changed", changes)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(changes.Sets)) {
		s := t.sets[name]
		if s == nil || !s.exists {
			return false, nil
		}
		types, err := t.conn.ReadTypes(t.options.Table)
		if err != nil {
			return false, err
		}
		if found, ok := types[name]; !ok || found != kernel.TypeOf(&s.LargeSet) {
			return false, nil
		}
		if err := t.readSet(s, changes, result); err != nil {
			return false, err
		}
	}
	return true, nil
}

// repaired records a foreign change that this Apply undoes.
func (t *Table) repaired(result *tables.Result, object, name, what string, changes watch.Changes) {
	if !t.programmed {
		return
	}
	first, found := changes.First()
	if !found {
		first.At = time.Now()
	}
	result.Repaired = append(result.Repaired, tables.Repair{Object: object, Name: name, What: what, Noticed: first.At})
}
