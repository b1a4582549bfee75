package backend

import (
	"context"
	"strings"

	"github.com/felixlike/felixlike/felixlike/denied"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/rules"
)

// nflogLogs reports packets that rules with Log decide under netfilter backends.
type nflogLogs struct {
	at Config
	// counters calls add with comment and packet counter of each of the backend's rules.
	counters func(context.Context, func(comment string, packets uint64)) error
}

// Check implements Denials: it programs a rule with Log in a scratch network namespace.
func (l nflogLogs) Check(ctx context.Context) error {
	logging := model.Policy{ID: model.PolicyID{Tier: model.TierAdmin, Name: "log"}, Ingress: []model.Rule{
		{Name: "0", Action: model.Allow, AnyPeer: true, AnyPort: true, Log: true},
	}}
	return inScratch(ctx, l.at, append(tryModel(), model.PolicyUpdate{Policy: &logging}, model.LogsUpdate{Reported: true}))
}

// Listen implements Denials.
func (l nflogLogs) Listen(ctx context.Context, got func(denied.Report)) (<-chan struct{}, error) {
	return denied.ListenNFLOG(ctx, l.at.NetNS, rules.LogGroup, got)
}

// Skipped implements Denials. Each rule with Log counts what it decides, and the rule before it
// what it reports.
func (l nflogLogs) Skipped(ctx context.Context) (uint64, error) {
	decided, reported := map[string]uint64{}, map[string]uint64{}
	err := l.counters(ctx, func(comment string, packets uint64) {
		if of, is := strings.CutPrefix(comment, rules.LogComment("")); is {
			reported[of] += packets
		} else {
			decided[comment] += packets
		}
	})
	var skipped uint64
	for comment, n := range reported {
		// The counters are read at different times.
		skipped += decided[comment] - min(n, decided[comment])
	}
	return skipped, err
}

// Refused implements Denials: the stage reports refused chains as quarantined.
func (l nflogLogs) Refused() error { return nil }
