package kubernetes

import (
	"cmp"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/felixlike/felixlike/felixlike/datastore"
	"github.com/felixlike/felixlike/model"
)

// change is an object that is set, or gone if item is nil.
type change struct {
	kind *kind
	key  key
	item *item
}

// taken is the content of all stores that was pending at one moment.
type taken struct {
	changes  []change
	problems []model.Problem
	since    time.Time
	synced   bool
	// unserved reports that the API server has no ServiceCIDRs.
	unserved bool
}

// take takes all that is pending, sorted.
func (s *state) take(all kindList) taken {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := taken{since: s.since, synced: s.syncedLocked(), problems: s.contact.problems(), unserved: s.stores[kindServiceCIDR].absent}
	s.since = time.Time{}
	close(s.taken)
	s.taken = make(chan struct{})
	for k, store := range s.stores {
		for key, i := range store.pending {
			t.changes = append(t.changes, change{all[k], key, i})
		}
		store.pending = map[key]*item{}
	}
	slices.SortFunc(t.changes, change.compare)
	return t
}

// compare sorts set objects first, by kind, then deleted objects, in reverse order.
func (c change) compare(o change) int {
	if c.item == nil || o.item == nil {
		if (c.item == nil) != (o.item == nil) {
			if c.item == nil {
				return 1
			}
			return -1
		}
		c, o = o, c
	}
	return cmp.Or(cmp.Compare(c.kind.name, o.kind.name), cmp.Compare(c.key.namespace, o.key.namespace), cmp.Compare(c.key.name, o.key.name))
}

// batches turns taken changes into batches. It belongs to Run.
type batches struct {
	log     *slog.Logger
	deliver func(datastore.Batch)

	revision uint64
	inSync   bool
	// faults are the problems of objects, contact those of the connection.
	faults  map[model.ObjectRef][]model.Problem
	contact []model.Problem
	// prefixes are those of each ServiceCIDR; rangesDelivered reports that they were delivered.
	prefixes        map[string][]netip.Prefix
	rangesDelivered bool
}

// publish delivers the taken changes, if there is anything new.
func (b *batches) publish(t taken) {
	news := t.synced != b.inSync || !slices.Equal(b.contact, t.problems)
	b.contact = t.problems
	for more := true; more; {
		part := t.changes
		if !b.inSync && len(part) > chunk {
			part = part[:chunk]
		}
		t.changes = t.changes[len(part):]
		more = len(t.changes) > 0
		events, changed := b.events(part)
		last := t.synced && !more
		if last && !t.unserved && !b.rangesDelivered {
			// An empty list is news, too: the cluster has no ServiceCIDRs.
			events, b.rangesDelivered = insertServiceCIDRs(events, b.allPrefixes()), true
		}
		if !news && !changed && len(events) == 0 {
			continue
		}
		news = false
		b.revision++
		b.inSync = b.inSync || last
		b.log.Debug("objects changed", "revision", b.revision, "events", len(events))
		b.deliver(datastore.Batch{Revision: b.revision, Seen: t.since, Events: events, Problems: b.problems(), InSync: b.inSync})
	}
}

// events decodes changes, and reports whether problems have changed.
func (b *batches) events(changes []change) (events []datastore.Event, changed bool) {
	ranges := false
	for _, c := range changes {
		d := decoded{event: c.kind.name.deleted(c.key)}
		if c.item != nil {
			var err error
			if d, err = c.kind.decode(c.item); err != nil {
				// It was encoded here.
				d.problems = []model.Problem{{Object: c.kind.name.ref(c.key), Reason: "cannot be decoded: " + err.Error()}}
			}
		}
		if d.event != nil {
			events = append(events, d.event)
		}
		if c.kind.name == kindServiceCIDR {
			ranges = true
			b.prefixes[c.key.name] = d.prefixes
		}
		changed = b.setFaults(c.kind.name.ref(c.key), d.problems) || changed
	}
	if ranges && b.rangesDelivered {
		events = insertServiceCIDRs(events, b.allPrefixes())
	}
	return events, changed
}

func (b *batches) setFaults(ref model.ObjectRef, now []model.Problem) (changed bool) {
	if slices.Equal(b.faults[ref], now) {
		return false
	}
	if len(now) == 0 {
		delete(b.faults, ref)
	} else {
		b.faults[ref] = now
	}
	return true
}

// allPrefixes returns the prefixes of all ServiceCIDRs, sorted.
func (b *batches) allPrefixes() []netip.Prefix {
	all := slices.Concat(slices.Collect(maps.Values(b.prefixes))...)
	slices.SortFunc(all, netip.Prefix.Compare)
	return slices.Compact(all)
}

// insertServiceCIDRs puts the prefixes of Services behind nodes and namespaces.
func insertServiceCIDRs(events []datastore.Event, prefixes []netip.Prefix) []datastore.Event {
	at := slices.IndexFunc(events, func(e datastore.Event) bool {
		switch e.(type) {
		case datastore.NodeSet, datastore.NamespaceSet:
			return false
		}
		return true
	})
	if at < 0 {
		at = len(events)
	}
	return slices.Insert(events, at, datastore.Event(datastore.ServiceCIDRsSet{Prefixes: prefixes}))
}

// problems returns the current list, sorted.
func (b *batches) problems() []model.Problem {
	all := slices.Clone(b.contact)
	for _, found := range b.faults {
		all = append(all, found...)
	}
	slices.SortFunc(all, func(x, y model.Problem) int {
		return cmp.Or(x.Object.Compare(y.Object), cmp.Compare(x.Field, y.Field), cmp.Compare(x.Reason, y.Reason))
	})
	return all
}
