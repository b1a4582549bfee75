package backend

import (
	"context"

	"github.com/felixlike/felixlike/felixlike/denied"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/rules"
)

// nflogLogs reports packets that rules with Log decide under netfilter backends.
type nflogLogs struct {
	at  Config
	try scratch
}

// Check implements Reports: it programs a rule with Log in a scratch network namespace.
func (l nflogLogs) Check(ctx context.Context) error {
	logging := model.Policy{ID: model.PolicyID{Tier: model.TierAdmin, Name: "log"}, Ingress: []model.Rule{
		{Name: "0", Action: model.Allow, AnyPeer: true, AnyPort: true, Log: true},
	}}
	return l.try(ctx, l.at, append(tryModel(), model.PolicyUpdate{Policy: &logging}, model.LogsUpdate{Reported: true}))
}

// Listen implements Reports.
func (l nflogLogs) Listen(ctx context.Context, got func(denied.Report)) (<-chan struct{}, error) {
	return denied.ListenNFLOG(ctx, l.at.NetNS, rules.LogGroup, got)
}

// Refused implements Reports: the stage reports refused chains as quarantined.
func (l nflogLogs) Refused() error { return nil }
