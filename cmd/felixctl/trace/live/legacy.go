package live

import (
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/florianl/go-nflog/v2"

	"github.com/felixlike/felixlike/cmd/felixctl/dump"
	"github.com/felixlike/felixlike/cmd/felixctl/trace"
	"github.com/felixlike/felixlike/model"
)

// legacyTrace reads the trace messages of iptables' legacy tables for the packets that
// its rule marks (the target TRACE). The kernel sends them to the packet logger of the
// family in the namespace, which has to be nfnetlink_log meanwhile.
type legacyTrace struct {
	node   Node
	guard  *guard
	log    *nflog.Nflog
	cancel context.CancelFunc
	mu     sync.Mutex
	events []legacyEvent
	family model.Family
}

// legacyEvent is a packet's position in a table.
type legacyEvent struct {
	table, chain, what string
	number             int
}

// traceGroup is the group of NFLOG that the target TRACE logs to: there is no
// choice.
const traceGroup = 0

// startLegacy has the kernel trace the packet, and listens.
func startLegacy(ctx context.Context, n Node, p trace.Packet) (_ *legacyTrace, err error) {
	t := &legacyTrace{node: n, family: p.Family(), cancel: func() {}}
	defer func() {
		if err != nil {
			err = errors.Join(err, t.end())
		}
	}()
	if err := t.listen(ctx); err != nil {
		return nil, err
	}
	tool, family := "iptables-legacy", "2"
	if t.family == model.IPv6 {
		tool, family = "ip6tables-legacy", "10"
	}
	if err := removeLegacyLeftovers(ctx, n, tool); err != nil {
		return nil, err
	}
	rule := fmt.Sprintf("PREROUTING %s -m comment --comment %s%d -j TRACE", legacyMatch(p), tracePrefix, os.Getpid())
	logger := "/proc/sys/net/netfilter/nf_log/" + family
	before, err := n.Run(ctx, "cat", logger)
	if err != nil {
		return nil, err
	}
	setup := fmt.Sprintf("echo nfnetlink_log >%s && %s --wait -t raw -I %s", logger, tool, rule)
	undo := fmt.Sprintf("%s --wait -t raw -D %s; echo %s >%s", tool, rule, strings.TrimSpace(before), logger)
	t.guard, err = startGuard(ctx, n, setup, undo)
	return t, err
}

// legacyMatch matches the packet and no other one.
func legacyMatch(p trace.Packet) string {
	match := fmt.Sprintf("-s %s -d %s ", p.Source, p.Destination)
	if p.Protocol.IsICMP() {
		kind, code := message(p)
		return match + fmt.Sprintf("-p %[1]s --%[1]s-type %[2]d/%[3]d", p.Protocol, kind, code)
	}
	return match + fmt.Sprintf("-p %s --sport %d --dport %d", p.Protocol, p.SourcePort, p.Port)
}

// removeLegacyLeftovers removes the rules of processes that have ended without.
func removeLegacyLeftovers(ctx context.Context, n Node, tool string) error {
	out, err := n.Run(ctx, tool+"-save", "-t", "raw")
	if err != nil {
		return err
	}
	comment := regexp.MustCompile(`--comment "?(` + tracePrefix + `\d+)"?`)
	for line := range strings.Lines(out) {
		rule, ours := strings.CutPrefix(strings.TrimSpace(line), "-A ")
		m := comment.FindStringSubmatch(rule)
		if !ours || m == nil || !leftover(m[1], tracePrefix) {
			continue
		}
		words := strings.Fields(strings.ReplaceAll(rule, `"`, ""))
		if _, err := n.Run(ctx, append([]string{tool, "--wait", "-t", "raw", "-D"}, words...)...); err != nil {
			return err
		}
	}
	return nil
}

func (t *legacyTrace) listen(ctx context.Context) error {
	ctx, t.cancel = context.WithCancel(ctx)
	return t.node.do(func() error {
		log, err := nflog.Open(&nflog.Config{Group: traceGroup, Copymode: nflog.CopyMeta, ReadTimeout: 10 * time.Millisecond})
		if err != nil {
			return fmt.Errorf("%s: listen to the trace of the tables: %w", t.node.Name, err)
		}
		t.log = log
		return log.RegisterWithErrorFunc(ctx, t.receive, func(err error) int {
			if ctx.Err() != nil {
				return 1
			}
			return 0
		})
	})
}

// receive takes one message: "TRACE: mangle:flx-forward:rule:2 ".
func (t *legacyTrace) receive(a nflog.Attribute) int {
	if a.Prefix == nil {
		return 0
	}
	if e, ok := parseLegacy(*a.Prefix); ok {
		t.mu.Lock()
		t.events = append(t.events, e)
		t.mu.Unlock()
	}
	return 0
}

func parseLegacy(prefix string) (legacyEvent, bool) {
	words := strings.Split(strings.TrimSpace(strings.TrimPrefix(strings.TrimRight(prefix, "\x00"), "TRACE: ")), ":")
	if len(words) != 4 {
		return legacyEvent{}, false
	}
	number, err := strconv.Atoi(words[3])
	return legacyEvent{words[0], words[1], words[2], number}, err == nil
}

// end stops listening, removes the rule and puts the logger back.
func (t *legacyTrace) end() error {
	t.cancel()
	var err error
	if t.guard != nil {
		err = t.guard.end()
	}
	if t.log != nil {
		err = errors.Join(err, t.log.Close())
	}
	return err
}

// steps are the events so far of the first packet: it comes to each rule once.
func (t *legacyTrace) steps() []trace.Step {
	t.mu.Lock()
	defer t.mu.Unlock()
	var steps []trace.Step
	for i, e := range t.events {
		if i > 0 && e == t.events[0] {
			break // sent again
		}
		if e.table == "raw" && e.chain == "PREROUTING" && e.number == 1 && e.what == "rule" {
			continue // the rule that traces
		}
		steps = append(steps, t.step(e))
	}
	return steps
}

// step describes the rule of an event.
func (t *legacyTrace) step(e legacyEvent) trace.Step {
	s := trace.Step{Node: t.node.Name, Place: fmt.Sprintf("iptables IPv%s %s", t.family, e.table), Table: "chain " + e.chain, Number: e.number, Effect: "passes"}
	switch e.what {
	case "return":
		s.Effect = "return"
		return s
	case "policy":
		s.Effect = "end of the chain"
		return s
	}
	table := t.node.Held.Table(dump.IPTables, map[model.Family]string{model.IPv4: "ip", model.IPv6: "ip6"}[t.family], e.table)
	if table == nil {
		return s
	}
	c := table.Chain(e.chain)
	if c == nil || e.number < 1 || e.number > len(c.Rules) {
		return s
	}
	rule := c.Rules[e.number-1]
	s.Rule, s.Comment = rule.Foreign, rule.Comment
	if rule.Foreign == "" {
		s.Rule, s.Effect = rule.String(), rule.Action.String()
		s.Policy, s.PolicyRule = trace.Behind(rule.Comment)
	}
	return s
}
