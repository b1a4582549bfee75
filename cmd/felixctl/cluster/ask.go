package cluster

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/felixlike/felixlike/internal/terminal"
)

// Bounds of one request to all nodes. A node whose kubelet hangs costs nodeTimeout.
const (
	atOnce      = 16
	nodeTimeout = time.Minute
)

// reply is the answer of a node's agent to a command.
type reply struct {
	agent
	out  []byte
	code int
}

// ask runs a command on all nodes, and returns the replies in the order of the agents. A
// node that gives no answer has a Fault.
func (t target) ask(ctx context.Context, progress io.Writer, command ...string) ([]reply, error) {
	agents, err := t.agents(ctx)
	if err != nil {
		return nil, err
	}
	replies := make([]reply, len(agents))
	var done atomic.Int64
	defer terminal.Progress(progress, func() string {
		return fmt.Sprintf("asking the agents: %d of %d", done.Load(), len(agents))
	})()
	var group errgroup.Group
	group.SetLimit(atOnce)
	for i, a := range agents {
		replies[i].agent = a
		if a.Fault != "" {
			done.Add(1)
			continue
		}
		group.Go(func() error {
			replies[i] = t.askOne(ctx, a, command)
			done.Add(1)
			return nil
		})
	}
	return replies, group.Wait()
}

func (t target) askOne(ctx context.Context, a agent, command []string) reply {
	ctx, cancel := context.WithTimeout(ctx, nodeTimeout)
	defer cancel()
	r := reply{agent: a}
	cmd := t.exec(ctx, a, command)
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.Output()
	r.out = out
	text := ""
	switch r.code, text, err = remoteCode(err, errs.Bytes()); {
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		r.Fault = fmt.Sprintf("no answer within %s", nodeTimeout)
	case err != nil:
		r.Fault = err.Error()
	case r.code > 1 || r.code == 1 && len(out) == 0:
		r.Fault = fmt.Sprintf("exit code %d: %s", r.code, text)
	}
	return r
}

// decode reads the reply's JSON. It notes a Fault if that cannot be read.
func (r *reply) decode(into any) bool {
	if r.Fault != "" {
		return false
	}
	if err := json.Unmarshal(r.out, into); err != nil {
		r.Fault = fmt.Sprintf("the answer cannot be read: %v", err)
		return false
	}
	return true
}

// errNoAnswer is the error of a command that some nodes have not answered: exit code 2.
func errNoAnswer(missing, of int) error {
	if missing == 0 {
		return nil
	}
	return fmt.Errorf("%d of %d nodes gave no answer", missing, of)
}
