package chaos

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/felixlike/felixlike/felixlike/control"
	"github.com/felixlike/felixlike/felixlike/health"
	"github.com/felixlike/felixlike/test/lab"
)

const (
	// askEvery is the time between two looks at an agent, askTime the longest wait for its
	// answer: kubelet waits for a second.
	askEvery = 200 * time.Millisecond
	askTime  = 3 * time.Second
)

const noAnswer = "no answer"

// look is what an agent said at a time.
type look struct {
	node  string
	at    time.Time
	ready bool
	// missing says why the agent is not ready.
	missing     string
	problems    []string
	quarantined []string
	insync      bool
}

// well reports whether the agent is ready and knows of no problem.
func (l look) well() bool { return l.ready && len(l.problems)+len(l.quarantined) == 0 }

// watcher asks both agents all the time.
type watcher struct {
	mu    sync.Mutex
	looks []look
}

func watchAgents(t *testing.T, l *lab.Lab) *watcher {
	t.Helper()
	w := &watcher{}
	ctx := t.Context()
	var asking sync.WaitGroup
	for _, name := range []string{"node1", "node2"} {
		agent := control.NewClient(l.Node(name).ControlSocket())
		asking.Go(func() {
			for ctx.Err() == nil {
				seen := ask(ctx, agent)
				seen.node = name
				w.mu.Lock()
				w.looks = append(w.looks, seen)
				w.mu.Unlock()
				pause(ctx, askEvery)
			}
		})
	}
	t.Cleanup(asking.Wait)
	return w
}

// ask asks one agent. An agent that does not answer is not ready.
func ask(ctx context.Context, agent *control.Client) look {
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	seen := look{at: time.Now()}
	ready, answer, err := agent.Probe(ctx, health.ReadyPath)
	if err != nil {
		seen.missing = noAnswer
		return seen
	}
	if seen.ready = ready; !ready {
		seen.missing = answer
	}
	status, err := agent.Status(ctx)
	if err != nil {
		seen.ready, seen.missing = false, noAnswer
		return seen
	}
	for _, p := range status.Problems {
		seen.problems = append(seen.problems, strings.TrimSpace(fmt.Sprintf("%s %s", p.Source, p.Reason)))
	}
	for _, q := range status.Quarantined {
		seen.quarantined = append(seen.quarantined, fmt.Sprintf("%s %s: %s", q.Kind, q.Name, q.Reason))
	}
	seen.insync = status.InSync && status.LastApply.Error == ""
	return seen
}

// between returns the looks in a time.
func (w *watcher) between(from, to time.Time) []look {
	w.mu.Lock()
	defer w.mu.Unlock()
	var some []look
	for _, l := range w.looks {
		if !l.at.Before(from) && !l.at.After(to) {
			some = append(some, l)
		}
	}
	return some
}

// wellSince reports whether the last look at each node, after a time, found all well.
func (w *watcher) wellSince(from time.Time) bool {
	last := map[string]look{}
	for _, l := range w.between(from, time.Now()) {
		last[l.node] = l
	}
	return len(last) == 2 && last["node1"].well() && last["node2"].well() && last["node1"].insync && last["node2"].insync
}

// said returns what was said in the looks, each text once.
func said(looks []look) []string {
	var texts []string
	for _, l := range looks {
		var now []string
		if !l.ready {
			now = append(now, l.missing)
		}
		now = append(now, l.problems...)
		for _, text := range now {
			if !slices.Contains(texts, text) {
				texts = append(texts, text)
			}
		}
	}
	return texts
}
