package tables

import (
	"time"

	"github.com/felixlike/felixlike/model"
)

// Result describes the effect of an Apply.
type Result struct {
	// Messages counts the mutating messages that were sent to the kernel;
	// zero means that nothing had to change.
	Messages int
	// RulesAdded, RulesDeleted, ElementsAdded and ElementsDeleted count the contents of those messages.
	RulesAdded, RulesDeleted, ElementsAdded, ElementsDeleted int
	// Rules and Elements count our rules and elements in the kernel after the Apply.
	Rules, Elements int
	// FullRead reports that Apply read the kernel's state first.
	FullRead bool
	// Saves and Restores count the programs that were started to read and to
	// write; a driver that talks to the kernel itself starts none.
	Saves, Restores int
	Duration        time.Duration
	// Refused are all quarantined objects, sorted by kind and name.
	Refused []Refusal
	// Unreadable names the tables that the driver cannot read in full, with the reason. It programs them all the same.
	Unreadable []string
	// Repaired are the foreign changes that this Apply has undone, sorted.
	Repaired []Repair
}

// Refusal is an object that cannot be programmed: the driver cannot encode
// it, or the kernel refuses it. The driver quarantines it, closes everything that relies
// on it (a chain of one rule that drops), and programs everything else. It tries it again after NextTry, unless that is zero, and at once
// when it changes.
type Refusal struct {
	// Object is the kind, "chain", "set" or "map"; Rule says which rule or
	// member is meant, if one is.
	Object, Name, Rule string
	// Origin is the object's. Of an entry of a map it is the address, of a whole map OfEveryPod.
	Origin Origin
	// Reason is why, in words.
	Reason string
	// Since is when it was first refused, NextTry when it is tried again.
	Since, NextTry time.Time
	Attempts       int
	// Closed names the chains that are closed because of it, sorted: itself, those that refer to a missing
	// object, and those that ask one of them (see Chain.Asked). It also has chains that cannot even be
	// closed; no rule leads to them.
	Closed []string
	// ClosedOf has the origins of Closed, in the same order.
	ClosedOf []Origin
}

// SameObject reports whether both are refusals of one object.
func (r Refusal) SameObject(o Refusal) bool {
	return r.Object == o.Object && r.Name == o.Name && r.Rule == o.Rule
}

// ClosingPods returns the refusal with the pods that are closed because of it.
func (r Refusal) ClosingPods(pods []model.PodID) Refusal {
	for _, id := range pods {
		r.Closed, r.ClosedOf = append(r.Closed, id.String()), append(r.ClosedOf, OfPod{id})
	}
	return r
}

// Repair is one object that another program changed and that Apply repaired.
type Repair struct {
	// Object is the kind: "table", "chain", "set" or "map"; "object" or "flowtable" for kinds that a driver
	// only deletes from its table; or "flow", with the name of its group.
	Object, Name string
	// What describes the difference, as in "2 rules missing, 1 foreign rule".
	What string
	// By is the program that made the change, as in "nft (pid 1234)", if the kernel named it.
	By string
	// Noticed is when the driver learned of it.
	Noticed time.Time
}
