package nftables

import (
	"errors"
	"maps"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/felixlike/felixlike/tables"
	"github.com/felixlike/felixlike/tables/nftables/kernel"
	"github.com/felixlike/felixlike/tables/nftables/watch"
)

// learn updates the known state: by a full read if nothing is known or the changes concern
// the whole table, else by reading the objects that they name. Without changes it reads
// nothing. It reports whether it was a full read.
//
// First it closes gaps that leave pods without policy: see closeGap.
func (t *Table) learn(result *tables.Result) (full bool, err error) {
	fresh := t.log.Take()
	if t.synced && fresh.Empty() {
		return false, nil
	}
	t.drift.pending.Merge(fresh)
	exists, err := t.closeGap(&fresh, result)
	if err != nil {
		return false, err
	}
	if t.synced && exists && !fresh.NeedFullRead() {
		if complete, err := t.reread(fresh); err != nil || complete {
			return false, err
		}
	}
	return true, t.learnAll(result)
}

// learnAll reads the whole table. If it does not exist, it comes with the guard.
func (t *Table) learnAll(result *tables.Result) (err error) {
	if t.generation, err = t.conn.Generation(); err != nil {
		return err
	}
	t.drift.pending.Merge(t.log.BeginRead(t.generation))
	found, err := t.conn.Read(t.options.Table)
	if err != nil {
		return err
	}
	state := found
	switch {
	case found.Dormant: // since closeGap looked
		err = t.wake(result)
	case !found.Exists && len(t.options.Guard) > 0:
		state, err = t.raiseGuard(result, kernel.Op{Kind: kernel.AddTable})
	}
	if err != nil {
		return err
	}
	if t.trusted {
		t.drift.compare(found)
	}
	t.adopt(state)
	t.synced, t.trusted = true, true
	return nil
}

// overtaken reports whether the kernel may have refused a commit only because another
// program was faster: the known state was not just read, or the ruleset has changed
// since.
func (t *Table) overtaken(err error, justRead bool) bool {
	var refused *kernel.RefusedError
	if !errors.As(err, &refused) {
		return false
	}
	if !justRead {
		return true
	}
	if !errors.Is(err, unix.ENOENT) && !errors.Is(err, unix.EEXIST) && !errors.Is(err, unix.EBUSY) {
		return false
	}
	now, err := t.conn.Generation()
	return err == nil && now != t.generation
}

// reread reads the objects of the changes and updates their known state. It reports false if a full read is
// necessary.
func (t *Table) reread(changes watch.Changes) (bool, error) {
	if complete, err := t.rereadChains(changes); err != nil || !complete {
		return false, err
	}
	if changes.Others != nil {
		others, err := t.conn.ReadOthers(t.options.Table)
		if err != nil {
			return false, err
		}
		t.others = others
	}
	return true, t.rereadSets(changes)
}

func (t *Table) rereadChains(changes watch.Changes) (complete bool, err error) {
	for _, name := range slices.Sorted(maps.Keys(changes.Chains)) {
		found, err := t.conn.ReadChain(t.options.Table, name)
		if err != nil {
			return false, err
		}
		known := t.chains[name]
		if found != nil && (known == nil || known.observed == nil) && renamed(t.objects, t.conn, changes) {
			return false, nil
		}
		t.drift.compareChain(name, found, changes)
		if known == nil && found == nil {
			continue
		}
		t.chain(name).take(found)
		t.dirtyChains.add(name)
	}
	return true, nil
}

// renamed reports whether one of our chains is gone without a notification. If a chain gets another name, the
// kernel notifies only the new name, and the references to the chain stay.
func renamed(o *objects, c *kernel.Conn, changes watch.Changes) bool {
	now, err := c.ReadChains(o.table)
	if err != nil {
		return true
	}
	for name, c := range o.chains {
		_, notified := changes.Chains[name]
		if _, there := now[name]; c.observed != nil && !there && !notified {
			return true
		}
	}
	return false
}

func (t *Table) rereadSets(changes watch.Changes) error {
	for _, name := range slices.Sorted(maps.Keys(changes.Sets)) {
		found, err := t.conn.ReadSet(t.options.Table, name)
		if err != nil {
			return err
		}
		if t.sets[name] == nil && found == nil {
			continue
		}
		s := t.set(name)
		t.drift.compareSet(s, found, changes)
		s.adopt(found)
		t.dirtySets.add(name)
	}
	return nil
}
