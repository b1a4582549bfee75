package watch

import "time"

// Changes are foreign changes of one table that are not repaired yet: of each object
// the first one.
type Changes struct {
	// Lost says that other changes may be missing, lostAt since when.
	Lost   bool
	lostAt time.Time
	// Table is a change of the table as a whole.
	Table *Change
	// Others is a change of a stateful object or a flowtable, which the driver never
	// writes.
	Others *Change
	// Chains and Sets are the changes of chains with their rules, and of sets and maps
	// with their elements, by name.
	Chains, Sets map[string]Change
}

// Change is one change.
type Change struct {
	// Generation is that of the ruleset that the change's transaction began.
	Generation uint32
	// At is when the notification was received.
	At time.Time
}

// NewChanges returns no changes.
func NewChanges() Changes { return Changes{Chains: map[string]Change{}, Sets: map[string]Change{}} }

// Empty reports whether there are no changes, and none are lost.
func (c *Changes) Empty() bool {
	return !c.Lost && c.Table == nil && c.Others == nil && len(c.Chains) == 0 && len(c.Sets) == 0
}

// lose records that other changes may be missing.
func (c *Changes) lose(at time.Time) {
	if !c.Lost {
		c.Lost, c.lostAt = true, at
	}
}

// Merge adds the changes of o; of two changes of one object the earlier stays.
func (c *Changes) Merge(o Changes) {
	if o.Lost {
		c.lose(o.lostAt)
	}
	if c.Table == nil {
		c.Table = o.Table
	}
	if c.Others == nil {
		c.Others = o.Others
	}
	for name, x := range o.Chains {
		keepFirst(c.Chains, name, x)
	}
	for name, x := range o.Sets {
		keepFirst(c.Sets, name, x)
	}
}

// NeedFullRead reports whether the changes take a full read of the table, or are read
// faster by one.
func (c *Changes) NeedFullRead() bool {
	return c.Lost || c.Table != nil || len(c.Chains)+len(c.Sets) > fewObjects
}

// fewObjects is how many chains and sets are looked at one by one: each takes
// some 50 us, a full read of a large table some 50 ms.
const fewObjects = 64

// First returns the earliest change; false without changes. A loss counts as a change without a generation.
func (c *Changes) First() (Change, bool) {
	var out Change
	found := false
	take := func(o Change) {
		if !found || o.At.Before(out.At) {
			out, found = o, true
		}
	}
	if c.Lost {
		take(Change{At: c.lostAt})
	}
	for _, o := range []*Change{c.Table, c.Others} {
		if o != nil {
			take(*o)
		}
	}
	for _, o := range c.Chains {
		take(o)
	}
	for _, o := range c.Sets {
		take(o)
	}
	return out, found
}

// OtherChange returns Others, or the zero Change.
func (c *Changes) OtherChange() Change {
	if c.Others == nil {
		return Change{}
	}
	return *c.Others
}

func keepFirst(m map[string]Change, name string, o Change) {
	if _, ok := m[name]; !ok {
		m[name] = o
	}
}
