package bench

import "fmt"

// enforcement is about the time from an object to the packets.
func (r *Report) enforcement() section {
	e := r.Enforcement
	s := section{
		heading: "From an object to the packets", left: 2,
		header: []string{
			"probes find themselves", "backend", "first, p50", "p99", "max", "by round, p50", "all from then on, p50", "p99", "max",
			"agent begins, p50", "programmed, p50", "resolution, p50", "p99", "changes",
		},
		text: []string{
			fmt.Sprintf("Between two pods of one node a packet is sent every %s, each of them the first of a connection (UDP) of its own, "+
				"and a policy is written or removed that denies them; %s others apply to the pod. Times are from the moment before the file is put in its "+
				"place: \"first\" until the first packet that finds the change, \"all from then on\" until the last packet that does not has been sent "+
				"and the next one is. %s.", milliseconds().print(e.Interval), grouped(int64(e.Policies)), rounds(r.Rounds)),
			fmt.Sprintf("\"Agent begins\" is the part of the datastore (%s) and the policy engine. A directory has to be quiet for %s before it is read, "+
				"on purpose: writers seldom write one file alone. \"Programmed\" is when the agent has its receivers' word. "+
				"Resolution is the time between the first packet that found the change and the one before it.", e.Datastore, milliseconds().print(e.Quiet)),
		},
	}
	in := milliseconds()
	for i := range e.Results {
		f := &e.Results[i]
		s.rows = append(s.rows, []string{
			string(f.Change), f.Backend, in.print(f.First.P50), in.print(f.First.P99), in.print(f.First.Max), spread(f.First.P50Rounds, in),
			in.print(f.Last.P50), in.print(f.Last.P99), in.print(f.Last.Max), in.print(f.Begun.P50), in.print(f.Programmed.P50),
			in.print(f.Resolution.P50), in.print(f.Resolution.P99), grouped(f.First.Count),
		})
	}
	return s
}
