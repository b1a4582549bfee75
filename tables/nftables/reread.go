package nftables

import (
	"maps"
	"slices"

	"github.com/felixlike/felixlike/tables/nftables/watch"
)

// reread reads what the news are about, and makes that what the kernel holds.
// It reports false if it takes a full read to know.
func (t *Table) reread(heard watch.Changes) (bool, error) {
	if complete, err := t.rereadChains(heard); err != nil || !complete {
		return false, err
	}
	if heard.Others != nil {
		others, err := t.conn.ReadOthers(t.options.Table)
		if err != nil {
			return false, err
		}
		t.others = others
	}
	return true, t.rereadSets(heard)
}

func (t *Table) rereadChains(heard watch.Changes) (complete bool, err error) {
	for _, name := range slices.Sorted(maps.Keys(heard.Chains)) {
		found, err := t.conn.ReadChain(t.options.Table, name)
		if err != nil {
			return false, err
		}
		known := t.chains[name]
		if found != nil && (known == nil || known.have == nil) && t.renamed(heard) {
			return false, nil
		}
		t.compareChain(name, found, heard)
		if known == nil && found == nil {
			continue
		}
		t.chain(name).take(found)
		t.touchedChains.add(name)
	}
	return true, nil
}

// renamed reports whether a chain of ours is not there any more though nothing
// was heard of it. Of a chain that gets another name, only the new one is told,
// and whatever led to it leads to it still.
func (t *Table) renamed(heard watch.Changes) bool {
	now, err := t.conn.ReadChains(t.options.Table)
	if err != nil {
		return true
	}
	for name, c := range t.chains {
		_, told := heard.Chains[name]
		if _, there := now[name]; c.have != nil && !there && !told {
			return true
		}
	}
	return false
}

func (t *Table) rereadSets(heard watch.Changes) error {
	for _, name := range slices.Sorted(maps.Keys(heard.Sets)) {
		found, err := t.conn.ReadSet(t.options.Table, name)
		if err != nil {
			return err
		}
		if t.sets[name] == nil && found == nil {
			continue
		}
		s := t.set(name)
		t.compareSet(s, found, heard)
		s.adopt(found)
		t.touchedSets.add(name)
	}
	return nil
}
