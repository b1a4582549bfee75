package compile

import (
	"fmt"

	networkingv1 "k8s.io/api/networking/v1"

	"github.com/felixlike/felixlike/felixlike/antrea"
)

// antreaGroup is a resolved group.
type antreaGroup struct {
	selections []Selection
	blocks     []ipBlock
	// missing is true if the group, or a child, does not exist. bad is true if one cannot be
	// understood.
	missing, bad bool
}

// groupID is the identifier of a group of the policy's own kind: a Group of its namespace, or a ClusterGroup.
func (c *antreaCompiler) groupID(name string) antrea.ID {
	if c.namespace != "" {
		return antrea.ID{Kind: antrea.KindGroup, Namespace: c.namespace, Name: name}
	}
	return antrea.ID{Kind: antrea.KindClusterGroup, Name: name}
}

// group resolves a group.
func (c *antreaCompiler) group(name, path, effect string) antreaGroup {
	clear(c.deep)
	return c.groupAt(0, name, path, effect)
}

// groupAt resolves a group, or one that it contains at that depth. If the whole cannot be understood, it has the pods of the parts that can.
func (c *antreaCompiler) groupAt(depth int, name, path, effect string) antreaGroup {
	id := c.groupID(name)
	c.uses.Add(id)
	if depth > 1 {
		if c.deep[id] {
			return antreaGroup{} // groups may contain each other
		}
		c.deep[id] = true
	}
	var spec *antrea.GroupSpec
	switch o := c.objects(id).(type) {
	case *antrea.ClusterGroup:
		spec = &o.Spec
	case *antrea.Group:
		spec = &o.Spec
	default:
		return antreaGroup{missing: true}
	}
	var out antreaGroup
	fail := func(format string, args ...any) {
		out.bad = true
		c.Add(path, "group %q: %s%s", name, fmt.Sprintf(format, args...), effect)
	}
	pods := spec.PodSelector != nil || spec.NamespaceSelector != nil
	switch {
	case spec.ServiceReference != nil:
		fail("serviceReference is not supported")
	case spec.ExternalEntitySelector != nil:
		fail("externalEntitySelector is not supported")
	case len(spec.ChildGroups) > 0 && (pods || len(spec.IPBlocks) > 0), pods && len(spec.IPBlocks) > 0:
		fail("needs one of selectors, ipBlocks and childGroups")
	case len(spec.ChildGroups) > 0:
		if depth > 0 {
			fail("a child group must not have childGroups")
		}
		for _, child := range spec.ChildGroups {
			g := c.groupAt(depth+1, child, path, effect)
			if g.missing && depth == 0 {
				c.Add(path, "group %q: child group %q does not exist", name, child)
			}
			out.selections, out.blocks = append(out.selections, g.selections...), append(out.blocks, g.blocks...)
			out.missing, out.bad = out.missing || g.missing, out.bad || g.bad
		}
	case len(spec.IPBlocks) > 0:
		for i := range spec.IPBlocks {
			b, err := c.antreaBlock(&spec.IPBlocks[i])
			if err != "" {
				fail("%s", err)
			}
			out.blocks = append(out.blocks, b)
		}
	case pods:
		s, ok := c.pods(spec.PodSelector, spec.NamespaceSelector, path, effect)
		if out.bad = !ok; ok {
			out.selections = []Selection{s}
		}
	default:
		fail("it has no content that is understood")
	}
	return out
}

// antreaBlock compiles an ipBlock, and returns its fault as text.
func (c *antreaCompiler) antreaBlock(b *antrea.IPBlock) (ipBlock, string) {
	inner := compiler{whole: true}
	block, ok := inner.block(&networkingv1.IPBlock{CIDR: b.CIDR, Except: b.Except}, "")
	if !ok {
		return ipBlock{}, inner.Problems[0].Reason
	}
	return block, ""
}
