package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/felixlike/felixlike/internal/namespace"
	"github.com/felixlike/felixlike/test/bench/worker"
)

// work runs a task in a process in the namespace, and keeps its measurements.
func (r *run) work(ctx context.Context, ns *namespace.Namespace, t worker.Task) error {
	task, err := json.Marshal(t)
	if err != nil {
		return err
	}
	cmd := command(ctx, r.Worker)
	cmd.Stdin = bytes.NewReader(task)
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	var complaints bytes.Buffer
	cmd.Stderr = &complaints
	if err := ns.Do(cmd.Start); err != nil {
		return fmt.Errorf("start the worker: %w", err)
	}
	read := r.readLines(out, t.Backend)
	if err := cmd.Wait(); err != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		return fmt.Errorf("worker: %w: %s", err, lastLine(complaints.String()))
	}
	return read
}

func (r *run) readLines(out io.Reader, backend string) error {
	lines := json.NewDecoder(out)
	for {
		var l worker.Line
		switch err := lines.Decode(&l); {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return fmt.Errorf("output of the worker: %w", err)
		}
		if l.Begin != "" {
			r.Progress.Case(l.Begin)
		}
		if l.Measured != nil {
			r.add(backend, "", *l.Measured)
		}
		if l.Engine != nil {
			r.engineTurns = append(r.engineTurns, engineTurn{*l.Engine, r.slot()})
		}
	}
}

// toolLoad saves the namespace's state by the kernel's own tools and loads it
// into a new one.
func (r *run) toolLoad(ctx context.Context, ns *namespace.Namespace, o *ovs, b worker.Backend) (err error) {
	r.Progress.Case(string(worker.ToolLoad))
	other, err := namespace.Anonymous()
	if err != nil {
		return err
	}
	defer other.Close()
	into, err := startSwitch(ctx, other, b)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, into.stop()) }()
	before, err := into.worker().CPU()
	if err != nil {
		return err
	}
	m := worker.Measurement{Case: worker.ToolLoad, Wall: []time.Duration{0}}
	var commands []string
	for _, t := range b.Tools {
		dump, err := save(ctx, ns, o.argv(t.Save))
		if err != nil {
			return err
		}
		err = load(ctx, other, into.argv(t.Load), dump, &m)
		dump.Close()
		if err != nil {
			return err
		}
		commands = append(commands, toolName(t))
	}
	after, err := into.worker().CPU()
	if err != nil {
		return err
	}
	m.CPU = m.CPU.Add(after.Minus(before))
	r.add(b.Name, strings.Join(commands, " + "), m)
	return nil
}

// save returns an open, already unlinked file with the tool's dump.
func save(ctx context.Context, ns *namespace.Namespace, argv []string) (*os.File, error) {
	dump, err := os.CreateTemp("", "felixlike-bench-")
	if err != nil {
		return nil, err
	}
	err = os.Remove(dump.Name())
	if err == nil {
		cmd := command(ctx, argv)
		cmd.Stdout = dump
		err = finish(ns, cmd)
	}
	if err == nil {
		_, err = dump.Seek(0, io.SeekStart)
	}
	if err != nil {
		dump.Close()
		return nil, err
	}
	return dump, nil
}

// load adds the cost of loading a dump to the measurement.
func load(ctx context.Context, ns *namespace.Namespace, argv []string, dump *os.File, m *worker.Measurement) error {
	cmd := command(ctx, argv)
	cmd.Stdin = dump
	begin := time.Now()
	if err := finish(ns, cmd); err != nil {
		return err
	}
	m.Wall[0] += time.Since(begin)
	m.CPU = m.CPU.Add(worker.CPU{User: cmd.ProcessState.UserTime(), System: cmd.ProcessState.SystemTime()})
	return nil
}
