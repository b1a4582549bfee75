package status

import (
	"fmt"
	"time"

	"github.com/felixlike/felixlike/felixlike/cluster"
	"github.com/felixlike/felixlike/felixlike/control"
	"github.com/felixlike/felixlike/felixlike/health"
	"github.com/felixlike/felixlike/felixlike/metrics"
	"github.com/felixlike/felixlike/felixlike/quarantine"
)

// Readiness reports whether everything known is programmed.
func (rep *Reporter) Readiness() health.Readiness {
	r := health.Readiness{Missing: rep.unready()}
	for _, q := range rep.Quarantine.View().Quarantined {
		r.Notes = append(r.Notes, quarantine.Reason(q))
	}
	return r
}

// Unavailable returns why no pod can be added to this node now.
func (rep *Reporter) Unavailable() []string { return rep.missing(false) }

// unready returns why the node is not ready: Unavailable, and reasons with which pods can be added. A node stays ready if a pod has lost its interface: the
// pod gets another one only if its sandbox can be added anew, and a pod with NET_ADMIN could block a rolling update.
func (rep *Reporter) unready() []string { return rep.missing(true) }

func (rep *Reporter) missing(all bool) []string {
	missing := rep.Cluster.Unknown()
	programmed, waits := rep.Progress.Programmed()
	switch behind := time.Since(waits); {
	case len(missing) > 0:
	case rep.Progress.LastError() != "":
		missing = append(missing, "programming the dataplane failed: "+rep.Progress.LastError())
	case programmed == 0:
		missing = append(missing, "nothing is programmed yet")
	case !waits.IsZero() && behind > rep.Grace:
		missing = append(missing, fmt.Sprintf("revision %d of %d is programmed, the next one has waited for %s", programmed, rep.Cluster.Observed(), behind.Round(time.Second)))
	}
	if unread := rep.Cluster.UnreadFiles(); unread != "" {
		missing = append(missing, unread)
	}
	for _, o := range rep.Parts.Notices() {
		if all || !o.Adds {
			missing = append(missing, o.Reason)
		}
	}
	return missing
}

// Measure returns the state for a scrape.
func (rep *Reporter) Measure() metrics.State {
	view := rep.Quarantine.View()
	notices := rep.Notices() // sorted by object and kind
	s := metrics.State{
		Synced: rep.Cluster.SourceSynced(), Pending: rep.Cluster.Model().Pending(), Quarantined: len(view.Quarantined),
		Ready: len(rep.Readiness().Missing) == 0,
		Endpoints: map[string]int{
			control.EndpointProgrammed: 0, control.EndpointPending: 0, control.EndpointClosed: 0, control.EndpointDetached: 0,
		},
	}
	s.Unread, s.Outdated = rep.Cluster.Files()
	s.Problems = map[metrics.Problem]int{{Kind: "NetworkPolicy", Reason: cluster.NotUnderstood}: 0} // a series for the alert
	for i, n := range notices {
		if i == 0 || n.Object != notices[i-1].Object || n.Kind != notices[i-1].Kind {
			s.Problems[metrics.Problem{Kind: n.Object.Kind, Reason: n.Kind}]++
		}
	}
	closed := rep.closed(view)
	for _, id := range rep.Cluster.Model().Pods() {
		state, _ := rep.Cluster.Model().State(id, closed)
		s.Endpoints[state]++
	}
	rep.Parts.Measure(&s)
	return s
}
