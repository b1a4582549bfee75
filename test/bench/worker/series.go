package worker

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/felixlike/felixlike/felixlike/datastore"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/rules"
)

// operation is one change. The steps before and after it count for CPU time and
// writes like the rest, but the wait for them is not part of its latency. Each
// part must come to at least one update of the model.
type operation struct{ before, change, after func() }

// series makes one change after the other.
func (m *measuring) series(ctx context.Context, c Case, n int, operationOf func(i int) operation) error {
	if n == 0 {
		return nil
	}
	// To make the objects is not the agent's work.
	operations := make([]operation, n)
	for i := range operations {
		operations[i] = operationOf(i)
	}
	return m.measure(c, func(out *Measurement) error {
		for i, op := range operations {
			for _, part := range []struct {
				send  func()
				timed bool
			}{{op.before, false}, {op.change, true}, {op.after, false}} {
				if part.send == nil {
					continue
				}
				p, wall, err := m.agent.change(ctx, part.send)
				if err != nil {
					return fmt.Errorf("operation %d: %w", i, err)
				}
				out.count(p)
				if part.timed {
					out.Wall = append(out.Wall, wall)
					if p.applied.Settling > 0 {
						out.Answered = append(out.Answered, wall-p.applied.Settling)
					}
					out.Flows = p.applied.Flows
					out.Rules, out.Elements = p.applied.Rules, p.applied.Elements
				}
			}
		}
		return nil
	})
}

// count adds the work of an apply.
func (m *Measurement) count(p pass) {
	m.Writes += p.applied.Writes
	m.Saves += p.applied.Saves
	m.Restores += p.applied.Restores
}

// changes makes all the changes of the task; at the end the model
// is the same as before.
func (m *measuring) changes(ctx context.Context) error {
	t, w, s := m.task, m.workload, m.agent.source
	for _, step := range []struct {
		c           Case
		n           int
		operationOf func(i int) operation
	}{
		{RuleChanged, 2 * t.Rules, func(i int) operation {
			changed, before := w.ChangedPolicy(i / 2)
			if i%2 == 1 {
				changed = before
			}
			return operation{change: func() { s.send(datastore.NetworkPolicySet{Policy: changed}) }}
		}},
		{ElementAdded, t.Elements, func(i int) operation {
			pod := w.Member(i)
			return operation{change: func() { s.send(datastore.PodSet{Pod: pod}) }}
		}},
		{ElementRemoved, t.Elements, func(i int) operation {
			pod := w.Member(i)
			return operation{change: func() { s.send(deleted(pod)) }}
		}},
		{EndpointAdded, t.Endpoints, func(i int) operation {
			pod, a := w.Endpoint(i)
			return operation{
				// The scheduler comes long before the CNI.
				before: func() { s.send(datastore.PodSet{Pod: pod}) },
				change: func() { s.update(model.AttachmentUpdate{Attachment: &a}) },
			}
		}},
		{EndpointRemoved, t.Endpoints, func(i int) operation {
			pod, a := w.Endpoint(i)
			return operation{
				change: func() { s.update(model.AttachmentRemove{Pod: a.Pod, Interface: a.Interface}) },
				after:  func() { s.send(deleted(pod)) },
			}
		}},
		{PolicyAdded, t.Policies, func(i int) operation {
			p := w.AddedPolicy(i)
			return operation{change: func() { s.send(datastore.NetworkPolicySet{Policy: p}) }}
		}},
		{PolicyRemoved, t.Policies, func(i int) operation {
			p := w.AddedPolicy(i)
			return operation{change: func() {
				s.send(datastore.NetworkPolicyDeleted{Namespace: p.Namespace, Name: p.Name})
			}}
		}},
	} {
		if err := m.series(ctx, step.c, step.n, step.operationOf); err != nil {
			return err
		}
	}
	return nil
}

func deleted(p *corev1.Pod) datastore.Event {
	return datastore.PodDeleted{ID: model.PodID{Namespace: p.Namespace, Name: p.Name}}
}

// foreign has another program make changes.
func (m *measuring) foreign(ctx context.Context, b Backend, r *rules.Renderer) error {
	if m.task.Foreign == 0 || b.Foreign == nil {
		return nil
	}
	for _, f := range b.Foreign(m.workload, r, m.task.Switch) {
		n := m.task.Foreign
		if f.Once {
			n = 1
		}
		err := m.measure(f.Case, func(out *Measurement) error {
			for i := range n {
				p, wall, notified, err := m.agent.repair(ctx, func() (time.Time, error) { return f.Change(i) })
				if err != nil {
					return fmt.Errorf("change %d: %w", i, err)
				}
				out.Wall = append(out.Wall, wall)
				out.Notified += notified
				out.count(p)
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// rechecks reads the kernel's state in full, several times. It must find
// nothing to write: all changes have been undone.
func (m *measuring) rechecks(ctx context.Context) error {
	if m.task.Rechecks == 0 {
		return nil
	}
	return m.measure(Recheck, func(out *Measurement) error {
		for range m.task.Rechecks {
			p, wall, err := m.agent.recheck(ctx)
			if err != nil {
				return err
			}
			out.Wall = append(out.Wall, wall)
			out.count(p)
		}
		if out.Writes > 0 {
			return fmt.Errorf("%d writes, though the kernel should have the desired state", out.Writes)
		}
		return nil
	})
}

// idle lets the agent be.
func (m *measuring) idle(ctx context.Context) error {
	if m.task.Idle == 0 {
		return nil
	}
	return m.measure(Idle, func(out *Measurement) error {
		begin := time.Now()
		end := time.NewTimer(m.task.Idle)
		defer end.Stop()
		for {
			select {
			case p := <-m.agent.observer.passes:
				if p.err != nil {
					return fmt.Errorf("apply: %w", p.err)
				}
				out.count(p)
			case <-end.C:
				out.Wall = []time.Duration{time.Since(begin)}
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		}
	})
}
