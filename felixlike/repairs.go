package felixlike

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
	// fightWindow and fightRepairs tell a fight with another program from
	// changes by hand: more than so many repairs of one object in that time.
	fightWindow  = time.Minute
	fightRepairs = 5
	// loggedRepairs bounds what one apply logs: a flushed table has thousands of
	// chains.
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

// note takes the repairs of one apply, and logs each of them; of an object that
// is changed over and over only the first ones of a minute, and that it is so.
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
		log := log.With("stage", stage, "object", repair.Object+" "+repair.Name, "by", who(repair.By))
		switch count := r.count(repairedObject{stage, repair.Object, repair.Name}, at); {
		case count <= fightRepairs && logged < loggedRepairs:
			logged++
			log.Warn("a foreign change was undone", "what", repair.What, "took", took)
		case count == fightRepairs+1:
			log.Warn("another program keeps changing what is ours; every change is undone, further ones of the next minute are only counted",
				"what", repair.What, "window", fightWindow)
		}
	}
	if more := len(repaired) - loggedRepairs; more > 0 {
		log.Warn("more foreign changes were undone at once", "stage", stage, "more", more, "by", who(repaired[len(repaired)-1].By))
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

// status returns what status tells of the repairs.
func (r *repairs) status() control.Repairs {
	return control.Repairs{Total: r.total, Last: slices.Clone(r.last)}
}

// who names a writer for people.
func who(by string) string {
	if by == "" {
		return "unknown"
	}
	return by
}
