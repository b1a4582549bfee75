package worker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/felixlike/felixlike/test/bench/workload"
)

// Run reads a Task from in, does it in this process's network namespace, and
// writes Lines to out.
func Run(ctx context.Context, in io.Reader, out io.Writer) error {
	var t Task
	if err := json.NewDecoder(in).Decode(&t); err != nil {
		return fmt.Errorf("read the task: %w", err)
	}
	m := &measuring{task: t, workload: workload.New(t.Profile), out: json.NewEncoder(out)}
	switch {
	case t.Engine != "":
		return m.engine()
	case t.Manifests != "":
		return m.manifests(ctx)
	}
	b, err := FindBackend(t.Backend)
	if err != nil {
		return err
	}
	return m.run(ctx, b)
}

func (m *measuring) run(ctx context.Context, b Backend) (err error) {
	c := Restart
	if m.task.Load {
		c = FirstLoad
	}
	if err := m.out.Encode(Line{Begin: string(c)}); err != nil {
		return err
	}
	backend, err := b.New(m.task.Switch)
	if err != nil {
		return err
	}
	m.agent = start(ctx, backend, m.workload, m.task.Switch)
	defer func() { err = errors.Join(err, m.agent.close()) }()
	if err := m.load(ctx, c); err != nil {
		return fmt.Errorf("%s: %w", c, err)
	}
	if m.task.Load {
		return nil
	}
	if err := m.changes(ctx); err != nil {
		return err
	}
	if err := m.foreign(ctx, b, backend.Renderer()); err != nil {
		return err
	}
	if err := m.rechecks(ctx); err != nil {
		return err
	}
	return m.idle(ctx)
}

// load reports the agent's first apply, in two parts: from the objects
// to the model, and from there into the kernel.
func (m *measuring) load(ctx context.Context, c Case) error {
	p, err := m.agent.next(ctx, func(pass) bool { return true })
	if err != nil {
		return err
	}
	select {
	case <-m.agent.source.ready:
	case <-ctx.Done():
		return ctx.Err()
	}
	programmed := p.done.since(p.model)
	out := &Measurement{
		Case: c, Wall: []time.Duration{programmed.Wall}, CPU: programmed.CPU,
		Model: p.model.since(m.agent.begin),
		Rules: p.applied.Rules, Elements: p.applied.Elements, Flows: p.applied.Flows,
	}
	out.count(p)
	return m.report(out)
}
