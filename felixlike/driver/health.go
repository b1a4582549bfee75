package driver

import (
	"fmt"
	"time"

	"github.com/felixlike/felixlike/felixlike/cluster"
	"github.com/felixlike/felixlike/felixlike/control"
	"github.com/felixlike/felixlike/felixlike/health"
	"github.com/felixlike/felixlike/felixlike/metrics"
	"github.com/felixlike/felixlike/felixlike/quarantine"
)

func (rep *reporter) readiness() health.Readiness {
	r := health.Readiness{Missing: rep.unavailable()}
	for _, q := range rep.quarantine.View().Quarantined {
		r.Notes = append(r.Notes, quarantine.Reason(q))
	}
	return r
}

// unavailable returns why no pod can be added to this node now. A pod that has lost its interface is
// no such reason: it gets another one only if its sandbox can be added anew. Nor does it make the
// agent not ready: a pod with NET_ADMIN could then block a rolling update.
func (rep *reporter) unavailable() []string {
	missing := rep.cluster.Unknown()
	programmed, waits := rep.progress.Programmed()
	switch behind := time.Since(waits); {
	case len(missing) > 0:
	case rep.progress.LastError() != "":
		missing = append(missing, "programming the dataplane failed: "+rep.progress.LastError())
	case programmed == 0:
		missing = append(missing, "nothing is programmed yet")
	case !waits.IsZero() && behind > rep.grace:
		missing = append(missing, fmt.Sprintf("revision %d of %d is programmed, the next one has waited for %s", programmed, rep.cluster.Observed(), behind.Round(time.Second)))
	}
	if unread := rep.cluster.UnreadFiles(); unread != "" {
		missing = append(missing, unread)
	}
	for _, o := range rep.modules.notices() {
		missing = append(missing, o.Reason)
	}
	return missing
}

func (rep *reporter) measure() metrics.State {
	view := rep.quarantine.View()
	notices := rep.notices() // sorted by object and kind
	s := metrics.State{
		Synced: rep.cluster.SourceSynced(), Pending: rep.cluster.Model().Pending(), Quarantined: len(view.Quarantined),
		Ready: len(rep.readiness().Missing) == 0,
		Endpoints: map[string]int{
			control.EndpointProgrammed: 0, control.EndpointPending: 0, control.EndpointClosed: 0, control.EndpointDetached: 0,
		},
	}
	s.Unread, s.Outdated = rep.cluster.Files()
	s.Problems = map[metrics.Problem]int{{Kind: "NetworkPolicy", Reason: cluster.NotUnderstood}: 0} // a series for the alert
	for i, n := range notices {
		if i == 0 || n.Object != notices[i-1].Object || n.Kind != notices[i-1].Kind {
			s.Problems[metrics.Problem{Kind: n.Object.Kind, Reason: n.Kind}]++
		}
	}
	for _, id := range rep.cluster.Model().Pods() {
		state, _ := rep.cluster.Model().State(id, view.Closed)
		s.Endpoints[state]++
	}
	rep.modules.measure(&s)
	return s
}
