package compile

import (
	"slices"

	"github.com/felixlike/felixlike/felixlike/antrea"
	"github.com/felixlike/felixlike/model"
)

// antreaPart are consecutive rules of one target.
type antreaPart struct {
	target          antreaTarget
	ingress, egress []model.Rule
}

// direction compiles the rules of a direction to parts.
func (c *antreaCompiler) direction(d model.Direction, rules []antrea.Rule) []antreaPart {
	var parts []antreaPart
	for i := range rules {
		r := &rules[i]
		name := indexed(d.String(), i)
		target := c.target(r, "spec."+name)
		c.targets = target.selections
		out := c.compileRule(d, name, r, target)
		if len(out) == 0 {
			continue
		}
		if n := len(parts); n == 0 || parts[n-1].target.key != target.key {
			parts = append(parts, antreaPart{target: target})
		}
		last := &parts[len(parts)-1]
		if d == model.Ingress {
			last.ingress = append(last.ingress, out...)
		} else {
			last.egress = append(last.egress, out...)
		}
	}
	return parts
}

// bounded returns the parts, with closed rules in a direction that exceeds a limit.
func (c *antreaCompiler) bounded(parts []antreaPart) []antreaPart {
	for _, d := range model.Directions() {
		var all []model.Rule
		for _, p := range parts {
			all = append(all, p.rules(d)...)
		}
		if !c.exceeds(d, all) {
			continue
		}
		for i := range parts {
			if closed := closedRules(parts[i].rules(d)); d == model.Ingress {
				parts[i].ingress = closed
			} else {
				parts[i].egress = closed
			}
		}
	}
	return slices.DeleteFunc(parts, func(p antreaPart) bool { return len(p.ingress)+len(p.egress) == 0 })
}

func (p *antreaPart) rules(d model.Direction) []model.Rule {
	if d == model.Ingress {
		return p.ingress
	}
	return p.egress
}
