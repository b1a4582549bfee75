package nftables

import "time"

// news are the pending foreign changes of the table.
type news struct {
	// lost says that other changes may be missing, lostAt since when.
	lost   bool
	lostAt time.Time
	// table is a change of the table as a whole, others one of an object of a kind that
	// the driver never writes.
	table, others *note
	chains, sets  map[string]note
}

// note is the first change of an object.
type note struct {
	generation uint32
	at         time.Time
}

func newNews() news { return news{chains: map[string]note{}, sets: map[string]note{}} }

func (n *news) empty() bool {
	return !n.lost && n.table == nil && n.others == nil && len(n.chains) == 0 && len(n.sets) == 0
}

// lose records that other changes may be missing.
func (n *news) lose(at time.Time) {
	if !n.lost {
		n.lost, n.lostAt = true, at
	}
}

// merge adds the changes of o; of two changes of one object the earlier stays.
func (n *news) merge(o news) {
	if o.lost {
		n.lose(o.lostAt)
	}
	if n.table == nil {
		n.table = o.table
	}
	if n.others == nil {
		n.others = o.others
	}
	for name, x := range o.chains {
		keepFirst(n.chains, name, x)
	}
	for name, x := range o.sets {
		keepFirst(n.sets, name, x)
	}
}

// sweeping reports whether it takes a full read to see to the news, or is
// faster with one.
func (n *news) sweeping() bool {
	return n.lost || n.table != nil || len(n.chains)+len(n.sets) > fewObjects
}

// fewObjects is how many chains and sets are looked at one by one: each takes
// some 50 us, a full read of a large table some 50 ms.
const fewObjects = 64

// first returns the earliest note, if there is one; that of a loss has no
// generation.
func (n *news) first() (note, bool) {
	var out note
	found := false
	take := func(o note) {
		if !found || o.at.Before(out.at) {
			out, found = o, true
		}
	}
	if n.lost {
		take(note{at: n.lostAt})
	}
	for _, o := range []*note{n.table, n.others} {
		if o != nil {
			take(*o)
		}
	}
	for _, o := range n.chains {
		take(o)
	}
	for _, o := range n.sets {
		take(o)
	}
	return out, found
}

func (n *news) othersNote() note {
	if n.others == nil {
		return note{}
	}
	return *n.others
}

func keepFirst(m map[string]note, name string, o note) {
	if _, ok := m[name]; !ok {
		m[name] = o
	}
}
