package policyflows

import "github.com/felixlike/felixlike/ovsfwd/openflow"

// Flows takes groups of flows by key. It calls render at once, and again whenever it
// sends the flows; until the key is set again, render returns the same flows.
type Flows interface {
	SetFlows(key string, render func() []openflow.Flow)
	RemoveFlows(key string)
}

// JudgedKey is the key of the flows without which nothing new leaves the switch
// (pipeline.Judged). They are to come behind all others.
const JudgedKey = "judged"
