package packetlog

import (
	"golang.org/x/time/rate"

	"github.com/felixlike/felixlike/felixlike/denied"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/rules"
)

// logLimits bounds the lines of each rule, and of all. The kernel's bound is for each of the
// several kernel rules that a rule may become, the switch's for the rules that share a meter.
type logLimits struct {
	// all is for all policies, reserve for those of the cluster alone: so the policies of a
	// namespace cannot take all lines.
	all, reserve *rate.Limiter
	rules        map[rules.LogKey]*rate.Limiter
	// over counts the packets without a line since the last takeOver.
	over uint64
}

func newLogLimits() *logLimits {
	const part = rules.LogsReserved
	return &logLimits{
		all:     rate.NewLimiter(rules.LogsPerNode*(100-part)/100, rules.LogsBurst*(100-part)/100),
		reserve: rate.NewLimiter(rules.LogsPerNode*part/100, rules.LogsBurst*part/100),
		rules:   map[rules.LogKey]*rate.Limiter{},
	}
}

// allow reports whether the limits allow a line for a report of a rule of this policy.
func (l *logLimits) allow(r denied.Report, of model.PolicyID) bool {
	rule := l.rules[r.Log]
	if rule == nil {
		rule = rate.NewLimiter(rules.LogsPerSecond, rules.LogsPerSecond)
		l.rules[r.Log] = rule
	}
	ofCluster := of != model.PolicyID{} && of.Namespace == ""
	if rule.AllowN(r.At, 1) && (ofCluster && l.reserve.AllowN(r.At, 1) || l.all.AllowN(r.At, 1)) {
		return true
	}
	l.over++
	return false
}

// keep forgets the rules that are gone.
func (l *logLimits) keep(known map[rules.LogKey]denied.LogRule) {
	for key := range l.rules {
		if _, found := known[key]; !found {
			delete(l.rules, key)
		}
	}
}

func (l *logLimits) takeOver() uint64 {
	n := l.over
	l.over = 0
	return n
}
