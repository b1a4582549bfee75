package backend

import (
	"context"
	"slices"
	"time"

	"github.com/felixlike/felixlike/managers"
	"github.com/felixlike/felixlike/tables"
)

// collisions adds objects that were refused because another object has their name to the
// report of a backend's stage.
type collisions struct {
	managers []interface{ Refusals() []tables.Refusal }
	// since has the time of each object's first refusal.
	since map[refusedObject]time.Time
}

type refusedObject struct{ object, name, rule string }

func newCollisions(all []managers.Manager) *collisions {
	c := &collisions{}
	for _, m := range all {
		if m, ok := m.(interface{ Refusals() []tables.Refusal }); ok {
			c.managers = append(c.managers, m)
		}
	}
	return c
}

// apply programs the desired state. If the driver refuses an object, it programs again
// without common chains, because those would be closed for all pods.
func (c *collisions) apply(ctx context.Context, program func(context.Context) (Applied, error)) (Applied, error) {
	a, err := program(ctx)
	if err == nil && len(a.Refused) > 0 && c.leaveCommonChains() {
		first := a
		a, err = program(ctx)
		a.Writes, a.Full = a.Writes+first.Writes, a.Full || first.Full
		a.Saves, a.Restores = a.Saves+first.Saves, a.Restores+first.Restores
		a.Repaired = append(first.Repaired, a.Repaired...)
	}
	return c.and(a), err
}

func (c *collisions) leaveCommonChains() bool {
	changes := false
	for _, m := range c.managers {
		if m, ok := m.(interface{ LeaveCommonChains() bool }); ok {
			changes = m.LeaveCommonChains() || changes
		}
	}
	return changes
}

// and adds the refused objects to the result of an Apply.
func (c *collisions) and(a Applied) Applied {
	since := map[refusedObject]time.Time{}
	a.Refused = slices.Clip(a.Refused)
	for _, m := range c.managers {
		for _, r := range m.Refusals() {
			id := refusedObject{r.Object, r.Name, r.Rule}
			if r.Since = c.since[id]; r.Since.IsZero() {
				r.Since = time.Now()
			}
			since[id] = r.Since
			a.Refused = append(a.Refused, r)
		}
	}
	c.since = since
	return a
}
