package tables

import (
	"net/netip"

	"github.com/felixlike/felixlike/model"
)

// Origin names the policy, group or pods that a chain, a set or an entry of a map exists
// for. It travels with the object to its Refusal, so no code has to find policies and pods
// by names of objects. nil is the origin of objects that concern no pod. Origins can be
// compared.
type Origin interface{ isOrigin() }

// OfEveryPod is the origin of chains that packets of every pod pass.
type OfEveryPod struct{}

// OfPolicy is the origin of a policy's rules of one direction. A policy whose both
// directions are refused has no direction.
type OfPolicy struct {
	ID        model.PolicyID
	Direction model.Direction
}

// OfList is the origin of the chain for a list of policies.
type OfList struct {
	// Identity is unique among all lists of both directions.
	Identity string
	// Admin is set if the chain evaluates only the admin tier of longer lists.
	Admin bool
	// OwnNode is set if the chain evaluates the list about packets to the own node.
	OwnNode bool
}

// OfGroup is the origin of the members of a group.
type OfGroup struct{ ID model.GroupID }

// OfPod is the origin of objects for one pod.
type OfPod struct{ ID model.PodID }

// OfAddresses is the origin of an entry of a map, or of a chain of a dispatch tree: the
// pods with these addresses.
type OfAddresses struct{ Prefix netip.Prefix }

func (OfEveryPod) isOrigin()  {}
func (OfPolicy) isOrigin()    {}
func (OfList) isOrigin()      {}
func (OfGroup) isOrigin()     {}
func (OfPod) isOrigin()       {}
func (OfAddresses) isOrigin() {}
