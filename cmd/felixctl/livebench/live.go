package livebench

import (
	"fmt"
	"time"

	"github.com/felixlike/felixlike/internal/measure"
)

// Live is the observation of an agent on a live node.
type Live struct {
	Node string `json:"node"`
	// Watched is the length of one turn.
	Watched   float64 `json:"watchedSeconds"`
	Datapath  string  `json:"datapath,omitempty"`
	Datastore string  `json:"datastore"`
	// From, To and Port are the pods that connections were opened between, empty if
	// none were.
	From string `json:"from,omitempty"`
	To   string `json:"to,omitempty"`
	Port int    `json:"port,omitempty"`
	// Switched reports that the backend was changed for the run.
	Switched bool     `json:"switched"`
	Results  []Result `json:"results"`
	// Since are the agent's own histograms since it began, under the last of the
	// backends.
	Since []Timing `json:"since,omitempty"`
}

// Timing is a histogram of the agent's. The quantiles are upper ends of its
// buckets, zero for one that is in the last bucket, which has none.
type Timing struct {
	What  string  `json:"what"`
	Count int64   `json:"count"`
	Mean  float64 `json:"meanSeconds,omitempty"`
	P50   float64 `json:"p50AtMostSeconds,omitempty"`
	P99   float64 `json:"p99AtMostSeconds,omitempty"`
}

// Result is the observation under one backend. Series have one value a round.
type Result struct {
	Backend string `json:"backend"`
	// Endpoints, Policies and Groups are the agent's model, Rules, Elements and Flows its
	// programmed state, in the last round.
	Endpoints int `json:"endpoints"`
	Policies  int `json:"policies"`
	Groups    int `json:"groups"`
	Rules     int `json:"rules"`
	Elements  int `json:"elements"`
	Flows     int `json:"flows"`
	// Handover is the time of the change to the backend, if there was one.
	Handover measure.Series `json:"handoverSeconds,omitempty"`
	// AgentCPU is CPUs that the agent used, with the programs that it started,
	// SwitchCPU those of ovs-vswitchd, and CPU those of the whole machine.
	AgentCPU  measure.Series `json:"agentCPUs"`
	SwitchCPU measure.Series `json:"switchCPUs"`
	CPU       measure.Series `json:"cpus"`
	// AgentRSS and SwitchRSS are memory in bytes at the end, AgentPeakRSS and
	// SwitchPeakRSS the most that there has been since the processes began.
	AgentRSS      measure.Series `json:"agentRSSBytes"`
	AgentPeakRSS  measure.Series `json:"agentPeakRSSBytes"`
	SwitchRSS     measure.Series `json:"switchRSSBytes"`
	SwitchPeakRSS measure.Series `json:"switchPeakRSSBytes"`
	// Changes and Checks count the passes of the policy stage: differences written, or
	// everything read; ChangeWall and CheckWall are their average times. Writes and
	// Repairs are those of all stages.
	Changes    measure.Series `json:"changes"`
	ChangeWall measure.Series `json:"changeWallSeconds,omitempty"`
	Checks     measure.Series `json:"checks"`
	CheckWall  measure.Series `json:"checkWallSeconds,omitempty"`
	Writes     measure.Series `json:"writes"`
	Repairs    measure.Series `json:"repairs"`
	// Connections are those that were opened between two pods.
	Connections measure.Latency `json:"connections,omitzero"`
}

// Sections are about a live node: the resource use of its agent, and its work.
func (l *Live) Sections(turns int) []measure.Section {
	how := "Nothing was changed for it."
	if l.Switched {
		how = "The backend was changed on the live node between the turns, and changed back at the end."
	}
	used := measure.Section{
		Heading: "Node " + l.Node + ", live", Left: 1,
		Header: []string{
			"backend", "pods", "policies", "groups", "rules", "elements", "flows", "agent, CPUs", "vswitchd, CPUs", "machine, CPUs",
			"agent, RSS", "peak", "vswitchd, RSS", "peak", "change to it",
		},
		Text: []string{
			fmt.Sprintf("Watched for %s, %s. %s CPU time of the agent is with that of the programs that it starts; \"machine\" is all that the "+
				"node did meanwhile. Peaks are since the processes began, under whichever backend. Datastore %s, datapath %s.",
				measure.Duration(l.Watched), measure.Rounds(turns), how, l.Datastore, l.Datapath),
		},
	}
	did := measure.Section{
		Heading: "Work of the agent meanwhile", Left: 1,
		Header: []string{"backend", "changes", "one took", "full checks", "one took", "writes", "repairs", "connections", "p50", "p99", "max"},
		Text:   []string{"Changes and full checks are those of the stage that programs policy, by the agent's own metrics; the counts are of all turns together, and zero is no failure."},
	}
	if l.From != "" {
		did.Text = append(did.Text, fmt.Sprintf("TCP connections were opened from %s to %s, port %d, one after the other, %d a second at the most, and reset.", l.From, l.To, l.Port, knocksPerSecond))
	}
	for i := range l.Results {
		f := &l.Results[i]
		count := func(n int) string { return measure.Grouped(int64(n)) }
		sum := func(s measure.Series) string { return measure.Grouped(int64(s.Sum())) }
		used.Rows = append(used.Rows, []string{
			f.Backend, count(f.Endpoints), count(f.Policies), count(f.Groups), count(f.Rules), count(f.Elements), count(f.Flows),
			measure.Spread(f.AgentCPU, measure.Plain()), measure.Spread(f.SwitchCPU, measure.Plain()), measure.Spread(f.CPU, measure.Plain()), measure.Middle(f.AgentRSS, measure.Megabytes()),
			measure.Middle(f.AgentPeakRSS, measure.Megabytes()), measure.Middle(f.SwitchRSS, measure.Megabytes()), measure.Middle(f.SwitchPeakRSS, measure.Megabytes()), measure.SpreadSeconds(f.Handover),
		})
		row := []string{
			f.Backend, sum(f.Changes), measure.Spread(f.ChangeWall, measure.Milliseconds()), sum(f.Checks), measure.Spread(f.CheckWall, measure.Milliseconds()),
			sum(f.Writes), sum(f.Repairs), "", "", "", "",
		}
		if c := f.Connections; c.Count > 0 {
			row = append(row[:7], measure.Grouped(c.Count), measure.Spread(c.P50Rounds, measure.Milliseconds()), measure.Spread(c.P99Rounds, measure.Milliseconds()), measure.Milliseconds().Print(c.Max))
		}
		did.Rows = append(did.Rows, row)
	}
	return []measure.Section{used, did, l.since()}
}

// since is the section of the agent's own metrics.
func (l *Live) since() measure.Section {
	s := measure.Section{
		Heading: "Since the agent began", Left: 1, Header: []string{"what", "count", "mean", "p50, at most", "p99, at most"},
		Text: []string{"By the agent's own histograms: quantiles are as fine as their buckets."},
	}
	for _, t := range l.Since {
		row := []string{t.What, measure.Grouped(t.Count), "", "", ""}
		for i, v := range []float64{t.Mean, t.P50, t.P99} {
			if v > 0 {
				row[2+i] = measure.Duration(v)
			}
		}
		s.Rows = append(s.Rows, row)
	}
	return s
}

const (
	// knocksPerSecond bounds the rate of connections: the user's server
	// has to take them.
	knocksPerSecond = 100
	// changeTimeout bounds the time of a change, also that back to the first
	// backend.
	changeTimeout = 2 * time.Minute
	returnRetry   = 500 * time.Millisecond
)
