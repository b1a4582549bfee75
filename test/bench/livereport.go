package bench

import "fmt"

// Live is what was seen of an agent that has a node to look after.
type Live struct {
	Node string `json:"node"`
	// Watched is for how long in a turn.
	Watched   float64 `json:"watchedSeconds"`
	Datapath  string  `json:"datapath,omitempty"`
	Datastore string  `json:"datastore"`
	// From, To and Port are the pods that connections were opened between, empty if
	// none were.
	From string `json:"from,omitempty"`
	To   string `json:"to,omitempty"`
	Port int    `json:"port,omitempty"`
	// Switched tells that the backend was changed for it.
	Switched bool         `json:"switched"`
	Results  []LiveResult `json:"results"`
	// Since is what the agent's own histograms tell of the time since it began, under
	// the last of the backends.
	Since []LiveTiming `json:"since,omitempty"`
}

// LiveTiming is a histogram of the agent's. The quantiles are upper ends of its
// buckets, zero for one that is in the last bucket, which has none.
type LiveTiming struct {
	What  string  `json:"what"`
	Count int64   `json:"count"`
	Mean  float64 `json:"meanSeconds,omitempty"`
	P50   float64 `json:"p50AtMostSeconds,omitempty"`
	P99   float64 `json:"p99AtMostSeconds,omitempty"`
}

// LiveResult is what was seen under one backend. Series have one value a round.
type LiveResult struct {
	Backend string `json:"backend"`
	// Endpoints, Policies and Groups are what the agent knew, Rules, Elements and
	// Flows what it had programmed of it, in the last round.
	Endpoints int `json:"endpoints"`
	Policies  int `json:"policies"`
	Groups    int `json:"groups"`
	Rules     int `json:"rules"`
	Elements  int `json:"elements"`
	Flows     int `json:"flows"`
	// Handover is how long the change to the backend took, where there was one.
	Handover Series `json:"handoverSeconds,omitempty"`
	// AgentCPU is CPUs that the agent used, with the programs that it started,
	// SwitchCPU those of ovs-vswitchd, and CPU those of the whole machine.
	AgentCPU  Series `json:"agentCPUs"`
	SwitchCPU Series `json:"switchCPUs"`
	CPU       Series `json:"cpus"`
	// AgentRSS and SwitchRSS are memory in bytes at the end, AgentPeakRSS and
	// SwitchPeakRSS the most that there has been since the processes began.
	AgentRSS      Series `json:"agentRSSBytes"`
	AgentPeakRSS  Series `json:"agentPeakRSSBytes"`
	SwitchRSS     Series `json:"switchRSSBytes"`
	SwitchPeakRSS Series `json:"switchPeakRSSBytes"`
	// Changes and Checks are what the policy stage did meanwhile: differences
	// were sent, or everything was read; ChangeWall and CheckWall how long one of
	// them took on average. Writes and Repairs are those of all stages.
	Changes    Series `json:"changes"`
	ChangeWall Series `json:"changeWallSeconds,omitempty"`
	Checks     Series `json:"checks"`
	CheckWall  Series `json:"checkWallSeconds,omitempty"`
	Writes     Series `json:"writes"`
	Repairs    Series `json:"repairs"`
	// Connections are those that were opened between two pods.
	Connections Latency `json:"connections,omitzero"`
}

// live is about a node that has work to do: what its agent uses, and what it did.
func (r *Report) live() []section {
	l := r.Live
	how := "Nothing was changed for it."
	if l.Switched {
		how = "The backend was changed on the live node between the turns, and changed back at the end."
	}
	used := section{
		heading: "Node " + l.Node + ", live", left: 1,
		header: []string{
			"backend", "pods", "policies", "groups", "rules", "elements", "flows", "agent, CPUs", "vswitchd, CPUs", "machine, CPUs",
			"agent, RSS", "peak", "vswitchd, RSS", "peak", "change to it",
		},
		text: []string{
			fmt.Sprintf("Watched for %s, %s. %s CPU time of the agent is with that of the programs that it starts; \"machine\" is all that the "+
				"node did meanwhile. Peaks are since the processes began, under whichever backend. Datastore %s, datapath %s.",
				duration(l.Watched), rounds(r.Rounds), how, l.Datastore, l.Datapath),
		},
	}
	did := section{
		heading: "What the agent did meanwhile", left: 1,
		header: []string{"backend", "changes", "one took", "full checks", "one took", "writes", "repairs", "connections", "p50", "p99", "max"},
		text:   []string{"Changes and full checks are those of the stage that programs policy, by the agent's own metrics; what happened in all turns together is counted, and none is no failure."},
	}
	if l.From != "" {
		did.text = append(did.text, fmt.Sprintf("TCP connections were opened from %s to %s, port %d, one after the other, %d a second at the most, and reset.", l.From, l.To, l.Port, knocksPerSecond))
	}
	for i := range l.Results {
		f := &l.Results[i]
		count := func(n int) string { return grouped(int64(n)) }
		sum := func(s Series) string { return grouped(int64(s.sum())) }
		used.rows = append(used.rows, []string{
			f.Backend, count(f.Endpoints), count(f.Policies), count(f.Groups), count(f.Rules), count(f.Elements), count(f.Flows),
			spread(f.AgentCPU, plain()), spread(f.SwitchCPU, plain()), spread(f.CPU, plain()), middle(f.AgentRSS, megabytes()),
			middle(f.AgentPeakRSS, megabytes()), middle(f.SwitchRSS, megabytes()), middle(f.SwitchPeakRSS, megabytes()), spreadSeconds(f.Handover),
		})
		row := []string{
			f.Backend, sum(f.Changes), spread(f.ChangeWall, milliseconds()), sum(f.Checks), spread(f.CheckWall, milliseconds()),
			sum(f.Writes), sum(f.Repairs), "", "", "", "",
		}
		if c := f.Connections; c.Count > 0 {
			row = append(row[:7], grouped(c.Count), spread(c.P50Rounds, milliseconds()), spread(c.P99Rounds, milliseconds()), milliseconds().print(c.Max))
		}
		did.rows = append(did.rows, row)
	}
	return []section{used, did, l.since()}
}

// since is what the agent's own metrics tell.
func (l *Live) since() section {
	s := section{
		heading: "Since the agent began", left: 1, header: []string{"what", "count", "mean", "p50, at most", "p99, at most"},
		text: []string{"By the agent's own histograms: quantiles are as fine as their buckets."},
	}
	for _, t := range l.Since {
		row := []string{t.What, grouped(t.Count), "", "", ""}
		for i, v := range []float64{t.Mean, t.P50, t.P99} {
			if v > 0 {
				row[2+i] = duration(v)
			}
		}
		s.rows = append(s.rows, row)
	}
	return s
}
