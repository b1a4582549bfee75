package backend

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/felixlike/felixlike/felixlike/denied"
	"github.com/felixlike/felixlike/ovsfwd/openflow"
	"github.com/felixlike/felixlike/ovsfwd/policyflows"
	"github.com/felixlike/felixlike/rules"
	"github.com/felixlike/felixlike/tables"
)

// applyLogged programs the policy flows. Rules with Log need meters, which are added before them
// and removed after them. If a step of this fails, policy is programmed without the log.
func (p *switchPolicy) applyLogged(ctx context.Context) (tables.Result, error) {
	if p.store.Logged() {
		p.logMetered = true
		err := p.addLogMeters(ctx)
		if lost := p.link.Conn.Err(); lost != nil {
			return tables.Result{}, fmt.Errorf("openflow connection lost: %w", lost)
		}
		if err != nil {
			p.store.Log(false)
			p.store.Complete()
			p.noteUnlogged(err)
		}
	}
	logged := p.store.Logged()
	done, err := p.applyReported(ctx)
	if logged && !p.store.Logged() {
		p.noteUnlogged(errors.New("the switch refuses flows that log"))
	}
	if err != nil {
		return done, err
	}
	keys := map[uint32]rules.LogKey{}
	for id, r := range p.store.LogRules() {
		keys[id] = rules.NewLogKey(r.Policy, r.Direction, &r.Rule)
	}
	p.mu.Lock()
	p.logged = keys
	p.mu.Unlock()
	if p.logMetered && !p.store.Logged() {
		p.logMeters = nil
		p.logMetered = p.link.Conn.DeleteMeters(ctx, policyflows.LogMeters()) != nil && p.link.Conn.Err() != nil
	}
	return done, nil
}

// addLogMeters adds the meters of rules with Log that the switch does not have, once for each
// connection.
func (p *switchPolicy) addLogMeters(ctx context.Context) error {
	conn := p.link.Conn
	if p.logMeters == conn {
		return nil
	}
	known, err := conn.Meters(ctx)
	if err != nil {
		return err
	}
	missing := slices.DeleteFunc(policyflows.LogMeters(), func(id uint32) bool { _, has := known[id]; return has })
	if err := conn.AddMeters(ctx, missing, rules.LogsPerSecond); err != nil {
		return err
	}
	p.logMeters = conn
	return nil
}

// noteUnlogged notes why policy is programmed without the log.
func (p *switchPolicy) noteUnlogged(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.unlogged = err
}

// switchLogs reports packets that rules with Log decide in the switch, and in the host's
// table.
type switchLogs struct {
	policy *switchPolicy
	host   nflogLogs
}

// Check implements Reports.
func (l switchLogs) Check(ctx context.Context) error {
	l.policy.mu.Lock()
	l.policy.unlogged = nil
	l.policy.mu.Unlock()
	conn, err := openflow.Dial(ctx, l.policy.link.Socket)
	if err != nil {
		return err
	}
	defer conn.Close()
	return errors.Join(tryActions(ctx, conn, policyflows.LogMeters()[0], rules.LogsPerSecond, policyflows.LogActions(policyflows.LogMeters()[0])), l.host.Check(ctx))
}

// Listen implements Reports.
func (l switchLogs) Listen(ctx context.Context, got func(denied.Report)) (<-chan struct{}, error) {
	ctx, cancel := context.WithCancel(ctx)
	host, err := l.host.Listen(ctx, got)
	if err != nil {
		cancel()
		return nil, err
	}
	return l.policy.listenToo(ctx, cancel, host, policyflows.LogID, func(in openflow.PacketIn) {
		packet, err := denied.Payload(in.Frame)
		if err != nil {
			return
		}
		l.policy.mu.Lock()
		key := l.policy.logged[policyflows.LoggedID(in)]
		l.policy.mu.Unlock()
		got(denied.Report{At: time.Now(), Direction: policyflows.ReportDirection(in.Table), Log: key, Packet: packet})
	})
}

// Refused implements Reports.
func (l switchLogs) Refused() error {
	l.policy.mu.Lock()
	defer l.policy.mu.Unlock()
	return l.policy.unlogged
}
