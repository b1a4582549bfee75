package bench

import (
	"fmt"

	"github.com/felixlike/felixlike/test/measure"
)

// enforcement is about the time from an object to the packets.
func (r *Report) enforcement() measure.Section {
	e := r.Enforcement
	s := measure.Section{
		Heading: "From an object to the packets", Left: 2,
		Header: []string{
			"packets find themselves", "backend", "first, p50", "p99", "max", "all from then on, p50", "p99", "max",
			"agent begins, p50", "has programmed, p50", "resolution, p50", "changes",
		},
		Text: []string{
			fmt.Sprintf("Between two pods of one node a packet is sent every %s, each of them the first of a new connection (UDP), "+
				"followed by one that stays allowed: where only that arrives, the packet was denied. A policy is changed so that it no longer "+
				"allows the packets, and back. Where a label is named, the sender loses the label by which the policy allows its packets, and gets it back. "+
				"%s other policies apply to the pod. "+
				"Times are from the moment before the object is written: \"first\" until the first packet is sent that finds the change, "+
				"\"all from then on\" until the first one after the last that does not. %s. p50 is the median of the rounds, with the lowest and the highest of them.",
				measure.Milliseconds().Print(e.Interval), measure.Grouped(int64(e.Policies)), measure.Rounds(r.Rounds)),
			fmt.Sprintf("Until the \"agent begins\" to program, it is the datastore (%s) and the policy engine "+
				"that take the time; when it \"has programmed\", it has the word of all receivers, and for both address families. Resolution is the "+
				"time between the first packet that found the change and the one before it.%s", e.Datastore, e.quiet()),
		},
	}
	in := measure.Milliseconds()
	for i := range e.Results {
		f := &e.Results[i]
		s.Rows = append(s.Rows, []string{
			string(f.Change), f.Backend, measure.Spread(f.First.P50Rounds, in), in.Print(f.First.P99), in.Print(f.First.Max),
			in.Print(f.Last.P50), in.Print(f.Last.P99), in.Print(f.Last.Max),
			in.Print(f.Begun.P50), in.Print(f.Programmed.P50), in.Print(f.Resolution.P50), measure.Grouped(f.First.Count),
		})
	}
	return s
}

// quiet says that the datastore waits on purpose. Reports of older versions are of a watched directory, which does.
func (e *Enforcement) quiet() string {
	if e.Quiet == 0 {
		return ""
	}
	return fmt.Sprintf(" All times contain %s for which the datastore waits on purpose for further changes.", measure.Milliseconds().Print(e.Quiet))
}
