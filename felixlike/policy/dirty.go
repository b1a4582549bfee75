package policy

// dirtyRecords has the records that the next Flush looks at.
type dirtyRecords struct {
	work     *Work
	pods     []*pod
	policies []*policy
	groups   []*group
	// targets are the selections to which other policies apply than before.
	targets []*selection
	// egresses is set if an Egress, or a pod of one, changed.
	egresses bool
}

// egress notes that the pods of a selection changed.
func (d *dirtyRecords) egress(s *selection) {
	for e := range s.egresses.All() {
		e.stale, d.egresses = true, true
	}
}

func (d *dirtyRecords) pod(p *pod) {
	if !p.dirty {
		p.dirty = true
		d.pods = append(d.pods, p)
	}
}

func (d *dirtyRecords) policy(p *policy) {
	if !p.dirty {
		p.dirty = true
		d.policies = append(d.policies, p)
	}
}

func (d *dirtyRecords) group(g *group) {
	if !g.dirty {
		g.dirty = true
		d.groups = append(d.groups, g)
	}
}

// target notes that other policies apply to the pods of a selection.
func (d *dirtyRecords) target(s *selection) {
	s.applied = nil
	if !s.stale {
		s.stale = true
		d.targets = append(d.targets, s)
	}
}

// class notes that other policies apply to the pods of a class.
func (d *dirtyRecords) class(c *class) {
	if c.stale {
		return
	}
	c.stale = true
	for _, p := range c.pods[local] {
		d.work.Visits++
		d.pod(p)
	}
}

// resolveTargets marks the classes of the dirty targets, and with them their local pods.
func (d *dirtyRecords) resolveTargets() {
	for _, s := range d.targets {
		s.stale = false
		for c := range s.classes.All() {
			d.work.Visits++
			d.class(c)
		}
	}
	d.targets = nil
}
