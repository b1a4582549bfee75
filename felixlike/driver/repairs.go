package driver

import (
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/felixlike/felixlike/felixlike/control"
	"github.com/felixlike/felixlike/tables"
)

const (
	// keptRepairs is how many repairs status shows.
	keptRepairs = 20
	// More than fightRepairs repairs of one object within fightWindow are a fight with
	// another program, and not changes by hand.
	fightWindow  = time.Minute
	fightRepairs = 5
	// loggedRepairs bounds the repairs that one apply logs: a flushed table has thousands
	// of chains.
	loggedRepairs = 20
)

// repairs remembers the foreign changes that were undone.
type repairs struct {
	total  int
	last   []control.Repair
	recent map[repairedObject]*recentRepairs
}

type repairedObject struct{ stage, kind, name string }

// recentRepairs counts the repairs of one object within a window of time.
type recentRepairs struct {
	since time.Time
	count int
}

func newRepairs() *repairs { return &repairs{recent: map[repairedObject]*recentRepairs{}} }

// note stores and logs the repairs of one apply. For an object that another program
// changes again and again, it logs only the first repairs of a minute, and this fact.
func (r *repairs) note(log *slog.Logger, stage string, repaired []tables.Repair, at time.Time) {
	if len(repaired) == 0 {
		return
	}
	maps.DeleteFunc(r.recent, func(_ repairedObject, c *recentRepairs) bool { return at.Sub(c.since) > fightWindow })
	logged := 0
	for _, repair := range repaired {
		took := max(at.Sub(repair.Noticed), 0)
		r.total++
		r.last = append(r.last, control.Repair{
			At: at, Stage: stage, Kind: repair.Object, Name: repair.Name, What: repair.What, By: repair.By, Took: took,
		})
		log := log.With("stage", stage, "object", repair.Object+" "+repair.Name, "by", writer(repair.By))
		switch count := r.count(repairedObject{stage, repair.Object, repair.Name}, at); {
		case count <= fightRepairs && logged < loggedRepairs:
			logged++
			log.Warn("repaired a foreign change", "what", repair.What, "took", took)
		case count == fightRepairs+1:
			log.Warn("another program keeps changing an object of felixlike; every change is repaired, but further repairs of the next minute are only counted",
				"what", repair.What, "window", fightWindow)
		}
	}
	if more := len(repaired) - loggedRepairs; more > 0 {
		log.Warn("repaired more foreign changes at once", "stage", stage, "more", more, "by", writer(repaired[len(repaired)-1].By))
	}
	r.last = slices.Delete(r.last, 0, max(len(r.last)-keptRepairs, 0))
}

func (r *repairs) count(object repairedObject, at time.Time) int {
	c := r.recent[object]
	if c == nil {
		c = &recentRepairs{since: at}
		r.recent[object] = c
	}
	c.count++
	return c.count
}

// status returns the repairs that status shows.
func (r *repairs) status() control.Repairs {
	return control.Repairs{Total: r.total, Last: slices.Clone(r.last)}
}

// writer names the other program for a log.
func writer(by string) string {
	if by == "" {
		return "unknown"
	}
	return by
}
