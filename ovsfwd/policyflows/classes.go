package policyflows

import (
	"math"
	"slices"

	"github.com/felixlike/felixlike/model"
)

// interval is a range of packet classes, both ends included. The class of a packet is its
// protocol and its destination port, or what ICMP has in the place of a port.
type interval struct{ first, last int }

// everyClass returns all classes. Their number is a power of two, for the tree of classes.
func everyClass() interval { return interval{0, 8<<16 - 1} }

// intervals returns the classes of ports; nil are those of every packet.
func intervals(ports []portMask) []interval {
	if ports == nil {
		return []interval{everyClass()}
	}
	all := make([]interval, len(ports))
	for i, m := range ports {
		first := protocolClass(m.protocol)<<16 | int(m.value)
		all[i] = interval{first, first | int(^m.mask)}
	}
	return all
}

// protocols are those that a portMask can have; their places are their classes, from 1 on.
func protocols() []model.Protocol {
	return []model.Protocol{model.TCP, model.UDP, model.SCTP, model.ICMP, model.ICMPv6}
}

func protocolClass(p model.Protocol) int { return slices.Index(protocols(), p) + 1 }

// classMasks returns the masks that cover an interval of classes, all of one protocol.
func classMasks(i interval) []portMask {
	return portMasks(model.PortRange{Protocol: protocols()[i.first>>16-1], First: uint16(i.first), Last: uint16(i.last)})
}

// leastOf is the least priority for each action; math.MaxUint16 stands for no rule.
type leastOf [model.Next + 1]uint16

func noLeast() leastOf {
	var l leastOf
	for a := range l {
		l[a] = math.MaxUint16
	}
	return l
}

// classes is a node of a binary tree over packet classes. It finds the least priority of the
// rules that match a class of an interval.
type classes struct {
	// least is of all rules that match any class of the node, whole of those that match all of
	// them.
	least, whole leastOf
	halves       [2]*classes
}

func newClasses() *classes { return &classes{least: noLeast(), whole: noLeast()} }

// half returns one half of the classes.
func (i interval) half(upper int) interval {
	middle := (i.first + i.last) / 2
	if upper == 0 {
		return interval{i.first, middle}
	}
	return interval{middle + 1, i.last}
}

func (i interval) contains(o interval) bool { return i.first <= o.first && o.last <= i.last }
func (i interval) meets(o interval) bool    { return i.first <= o.last && o.first <= i.last }

// add notes a rule that matches an interval. own are the classes of the node.
func (c *classes) add(own, of interval, action model.Action, priority uint16) {
	c.least[action] = min(c.least[action], priority)
	if of.contains(own) {
		c.whole[action] = min(c.whole[action], priority)
		return
	}
	for n := range c.halves {
		if half := own.half(n); of.meets(half) {
			if c.halves[n] == nil {
				c.halves[n] = newClasses()
			}
			c.halves[n].add(half, of, action, priority)
		}
	}
}

// find lowers the least priorities to those of the rules that match a class of the interval.
func (c *classes) find(own, of interval, least *leastOf) {
	if c == nil {
		return
	}
	if of.contains(own) {
		least.lower(c.least)
		return
	}
	least.lower(c.whole)
	for n := range c.halves {
		if half := own.half(n); of.meets(half) {
			c.halves[n].find(half, of, least)
		}
	}
}

func (l *leastOf) lower(o leastOf) {
	for a := range l {
		l[a] = min(l[a], o[a])
	}
}
