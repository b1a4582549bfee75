// Package tenancy says which namespaces reach each other where namespaces are isolated (setting isolation): it turns
// NetNamespaces into classes of namespaces. It also says which addresses packets of a class to the outside have, by NetNamespaces and
// HostSubnets.
//
// Namespaces with one number are one class. A namespace without a NetNamespace, or with one that is not understood, is a
// class of its own. Number 0 makes a namespace global, which is a property: it is a class of its own, too. So nothing is
// allowed because an object is missing, and isolation needs no number.
//
// It does no I/O and knows no policy. It is tested by tables, and with felixlike/policy against felixlike/policy/oracle.
package tenancy

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/felixlike/felixlike/felixlike/antrea"
	"github.com/felixlike/felixlike/model"
)

// MaxNumber is the greatest number of a NetNamespace, that of a VXLAN.
const MaxNumber = 1<<24 - 1

// Class is a class of namespaces. Equal values are one class.
type Class struct {
	// Number is the one that its namespaces share, or zero for the class of one namespace.
	Number int64
	// Namespace is the name of the only namespace of a class without number.
	Namespace string
	// Global is set if all namespaces reach the class, and it reaches all.
	Global bool
}

// Classes are the classes of all namespaces.
type Classes struct {
	objects map[string]*antrea.NetNamespace
	// numbered are the names of the namespaces with each number.
	numbered map[int64]map[string]struct{}
	// addressed are the names of those with addresses for packets to the outside.
	addressed map[string]struct{}
}

// New returns the classes of namespaces without NetNamespaces.
func New() *Classes {
	return &Classes{objects: map[string]*antrea.NetNamespace{}, numbered: map[int64]map[string]struct{}{}, addressed: map[string]struct{}{}}
}

// Set creates or replaces the NetNamespace of that name, or removes it if it is nil.
func (c *Classes) Set(name string, object *antrea.NetNamespace) {
	if old := c.Of(name); old.Number != 0 {
		delete(c.numbered[old.Number], name)
		if len(c.numbered[old.Number]) == 0 {
			delete(c.numbered, old.Number)
		}
	}
	delete(c.addressed, name)
	if object == nil {
		delete(c.objects, name)
		return
	}
	c.objects[name] = object
	if len(object.EgressIPs) > 0 {
		c.addressed[name] = struct{}{}
	}
	if now := c.Of(name); now.Number != 0 {
		if c.numbered[now.Number] == nil {
			c.numbered[now.Number] = map[string]struct{}{}
		}
		c.numbered[now.Number][name] = struct{}{}
	}
}

// Names returns the names of the NetNamespaces, sorted.
func (c *Classes) Names() []string { return slices.Sorted(maps.Keys(c.objects)) }

// Of returns the class of a namespace.
func (c *Classes) Of(namespace string) Class {
	alone := Class{Namespace: namespace}
	object := c.objects[namespace]
	if object == nil || fault(object) != "" {
		return alone
	}
	if *object.NetID == 0 {
		alone.Global = true
		return alone
	}
	return Class{Number: *object.NetID}
}

// Members returns the namespaces of a class, sorted: those with its number, or the only one.
func (c *Classes) Members(class Class) []string {
	switch {
	case class.Number != 0:
		return slices.Sorted(maps.Keys(c.numbered[class.Number]))
	case c.Of(class.Namespace) == class:
		return []string{class.Namespace}
	}
	return nil
}

// NumberOf returns the number of a NetNamespace, or nil if it is not understood.
func NumberOf(o *antrea.NetNamespace) *int64 {
	if fault(o) != "" {
		return nil
	}
	return o.NetID
}

// fault returns why a NetNamespace is not understood, or "".
func fault(o *antrea.NetNamespace) string {
	switch {
	case o.NetName != o.Name:
		return fmt.Sprintf("netname: %q is not the name of the object", o.NetName)
	case o.NetID == nil:
		return "netid: there is no number"
	case *o.NetID < 0 || *o.NetID > MaxNumber:
		return fmt.Sprintf("netid: %d is not between 0 and %d", *o.NetID, MaxNumber)
	}
	return ""
}

// Joined reports whether a NetNamespace has its number because it was joined to another one on purpose.
func Joined(o *antrea.NetNamespace) bool {
	return o.NetID != nil && o.Annotations[model.JoinedAnnotation] == strconv.FormatInt(*o.NetID, 10)
}

// wanted reports whether all namespaces but one, which the others were joined to, have their number on purpose.
func (c *Classes) wanted(names []string) bool {
	others := 0
	for _, name := range names {
		if !Joined(c.objects[name]) {
			others++
		}
	}
	return others <= 1
}

// Problems returns the NetNamespaces that are not understood, parts that are not in force, and the numbers that several
// namespaces have, in order, unless these were joined on purpose. OpenShift SDN joins namespaces by equal numbers alone.
func (c *Classes) Problems() []model.Problem {
	var all []model.Problem
	seen := map[int64]bool{}
	for _, name := range c.Names() {
		o := c.objects[name]
		add := func(field, format string, args ...any) {
			all = append(all, model.Problem{Object: o.ID().Ref(), Field: field, Reason: fmt.Sprintf(format, args...)})
		}
		if o.NetName == "" && o.NetID == nil {
			continue // it could not be decoded, and the datastore has said why
		}
		if text := fault(o); text != "" {
			field, reason, _ := strings.Cut(text, ": ")
			add(field, "%s; the namespace is isolated from all others", reason)
			continue
		}
		if seen[*o.NetID] {
			continue
		}
		seen[*o.NetID] = true
		if joined := slices.Sorted(maps.Keys(c.numbered[*o.NetID])); len(joined) > 1 && !c.wanted(joined) {
			add("netid", "%d is also the number of %s: these namespaces are joined", *o.NetID, Listed(joined[1:]))
		}
	}
	return all
}

// maxListed is how many names a problem has.
const maxListed = 10

// Listed returns names, or the first of many.
func Listed(names []string) string {
	if more := len(names) - maxListed; more > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:maxListed], ", "), more)
	}
	return strings.Join(names, ", ")
}
