package packetlog

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/felixlike/felixlike/felixlike/control"
	"github.com/felixlike/felixlike/felixlike/driver"
	"github.com/felixlike/felixlike/model"
)

const (
	// historyMinutes, historyFlows and historyPolicies, those of one flow, bound the history: about 10 MB.
	historyMinutes  = 60
	historyFlows    = 4096
	historyPolicies = 32
	// historyAlive is the time between two looks at the clock without packets.
	historyAlive = 10 * time.Second
)

// History keeps the denied packets of the last hour. It follows Denied as a client does, but for names it waits: it must not take more than a
// hundredth of a processor (session.gather).
type History struct {
	denied *Denied
	now    func() time.Time

	mu      sync.Mutex
	from    time.Time
	fault   string
	minutes []*minute
	flows   int
}

// minute has the flows of one minute.
type minute struct {
	begin    time.Time
	flows    map[flow]*control.DropFlow
	notShown uint64
}

// flow is what the packets of a row have in common.
type flow struct {
	from, to                                                     control.DropEnd
	direction, port, by, policies, policy, rule, service, reason string
	rejected                                                     bool
}

// NewHistory returns the history of the packets that d reports.
func NewHistory(d *Denied) *History {
	d.always = true
	return &History{denied: d, now: time.Now}
}

// Module returns the functions of the module. The reports are on with the first apply, so that an agent that starts again
// changes no rule.
func (h *History) Module() driver.Module {
	asked := false
	return driver.Module{
		Run: h.run,
		Updates: func() []model.Update {
			if asked {
				return nil
			}
			asked = true
			return []model.Update{model.DenialsUpdate{Reported: true}}
		},
	}
}

func (h *History) run(ctx context.Context) error {
	again := historyRetry()
	for {
		f := newFollower[control.Drop](maxReports)
		f.patient = true
		err := h.denied.begin(ctx, f)
		if err == nil {
			again = historyRetry()
			h.begun()
			err = h.denied.stream.follow(ctx, h.denied.view, f, historyAlive, h.take)
			h.denied.leave(ctx, f)
		}
		h.failed(err)
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(again.Step()):
		}
	}
}

// historyRetry returns the times between two tries to begin.
func historyRetry() wait.Backoff {
	return wait.Backoff{Duration: time.Second, Factor: 2, Steps: 7, Cap: time.Minute}
}

func (h *History) begun() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.fault, h.from = "", h.now()
}

func (h *History) failed(err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if err != nil {
		h.fault = err.Error()
	}
}

// take adds a packet, nil for none. If there is no room, older minutes go.
func (h *History) take(d *control.Drop) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.forget()
	if d == nil {
		return nil
	}
	m := h.minute(d.At)
	policies := d.Policies[:min(len(d.Policies), historyPolicies)]
	if d.NotShown > 0 {
		m.notShown += d.NotShown
		return nil
	}
	key := flow{
		d.From, d.To, d.Direction, d.PortText(), d.By, strings.Join(policies, ","), d.Policy, d.Rule, d.Service, d.Reason, d.Rejected,
	}
	row := m.flows[key]
	for row == nil && h.flows >= historyFlows && len(h.minutes) > 1 {
		h.drop()
	}
	switch {
	case row != nil:
	case h.flows >= historyFlows:
		m.notShown++
		return nil
	default:
		first := *d
		first.SourcePort = 0
		first.Policies, first.MorePolicies = slices.Clone(policies), len(d.Policies)-len(policies)
		row = &control.DropFlow{Drop: first}
		m.flows[key] = row
		h.flows++
	}
	row.Packets++
	row.Last = d.At
	return nil
}

// minute returns the minute of a packet.
func (h *History) minute(at time.Time) *minute {
	begin := at.Truncate(time.Minute)
	if n := len(h.minutes); n > 0 && h.minutes[n-1].begin.Sub(h.now()) > time.Minute { // the clock was set back
		h.minutes, h.flows, h.from = nil, 0, h.now()
	}
	if n := len(h.minutes); n > 0 && !h.minutes[n-1].begin.Before(begin) {
		return h.minutes[n-1] // a packet is late
	}
	m := &minute{begin: begin, flows: map[flow]*control.DropFlow{}}
	h.minutes = append(h.minutes, m)
	return m
}

// forget drops the minutes that are too old.
func (h *History) forget() {
	for len(h.minutes) > 0 && h.now().Sub(h.minutes[0].begin) > historyMinutes*time.Minute {
		h.drop()
	}
}

func (h *History) drop() {
	m := h.minutes[0]
	h.minutes, h.flows = h.minutes[1:], h.flows-len(m.flows)
	if end := m.begin.Add(time.Minute); h.from.Before(end) {
		h.from = end
	}
}

// DropHistory implements control.Agent.
func (h *History) DropHistory(context.Context) (control.DropHistory, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.forget()
	out := control.DropHistory{From: h.from, Fault: h.fault, Minutes: []control.DropMinute{}}
	for _, m := range h.minutes {
		row := control.DropMinute{Begin: m.begin, NotShown: m.notShown, Flows: make([]control.DropFlow, 0, len(m.flows))}
		for _, f := range m.flows {
			row.Flows = append(row.Flows, *f)
		}
		slices.SortFunc(row.Flows, func(a, b control.DropFlow) int { return a.At.Compare(b.At) })
		out.Minutes = append(out.Minutes, row)
	}
	return out, nil
}
