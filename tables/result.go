package tables

import "time"

// Result says what an Apply did.
type Result struct {
	// Messages counts the mutating messages that were sent to the kernel;
	// zero means that nothing had to change.
	Messages int
	// RulesAdded, RulesDeleted, ElementsAdded and ElementsDeleted count what
	// those messages carried.
	RulesAdded, RulesDeleted, ElementsAdded, ElementsDeleted int
	// Rules and Elements count what the kernel holds of ours after the Apply.
	Rules, Elements int
	// FullRead tells that the kernel's state was read first.
	FullRead bool
	// Saves and Restores count the programs that were started to read and to
	// write; a driver that talks to the kernel itself starts none.
	Saves, Restores int
	Duration        time.Duration
	// Refused are all objects that are set aside now, sorted by kind and name.
	Refused []Refusal
	// Repaired are the foreign changes that this Apply has undone, sorted.
	Repaired []Repair
}

// Refusal is an object that cannot be programmed: the driver cannot encode
// it, or the kernel refuses it. It is set aside, with everything that relies on it
// standing closed (a chain of one rule that drops), while all else is
// programmed. It is tried again after NextTry, unless that is zero, and at once
// when it changes.
type Refusal struct {
	// Object is the kind, "chain", "set" or "map"; Rule says which rule or
	// member is meant, if one is.
	Object, Name, Rule string
	// Reason is why, in words.
	Reason string
	// Since is when it was first refused, NextTry when it is tried again.
	Since, NextTry time.Time
	Attempts       int
	// Closed names the chains that stand closed because of it, sorted: itself, those
	// that refer to what is not there, and those that ask one of them (see
	// Chain.Asked). One that cannot even stand closed is among them; nothing comes
	// to it.
	Closed []string
}

// Repair is one object that somebody else changed and that was put right.
type Repair struct {
	// Object is the kind: "table", "chain", "set" or "map", or of what a driver
	// never makes itself, in its table, "object" or "flowtable"; or "flow", whose
	// name is that of its group.
	Object, Name string
	// What says what was wrong, as "2 rules missing, 1 foreign rule".
	What string
	// By is who did it, as "nft (pid 1234)", if the kernel said so.
	By string
	// Noticed is when the driver learned of it.
	Noticed time.Time
}
