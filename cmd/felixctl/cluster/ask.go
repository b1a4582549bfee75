package cluster

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"github.com/felixlike/felixlike/internal/printable"
	"github.com/felixlike/felixlike/internal/terminal"
)

// reply is the answer of a node's agent to a command.
type reply struct {
	agent
	out  []byte
	code int
	// cut is set if kubectl lost its connection, or the end of the output.
	cut bool
}

// ask runs a command that changes nothing on all nodes, and returns the replies in the order
// of the agents. A node that gives no answer has a Fault. A node is asked once more if its
// answer was cut: kubectl exec can lose the end of the output and report success
// (https://github.com/kubernetes/kubernetes/issues/124571).
func (t target) ask(ctx context.Context, progress io.Writer, command ...string) ([]reply, error) {
	return t.askWith(ctx, progress, nil, command...)
}

// askWith is ask for a command that reads its standard input.
func (t target) askWith(ctx context.Context, progress io.Writer, stdin []byte, command ...string) ([]reply, error) {
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
			replies[i] = t.askOne(ctx, a, stdin, command)
			if replies[i].cut {
				replies[i] = t.askOne(ctx, a, stdin, command)
			}
			done.Add(1)
			return nil
		})
	}
	return replies, group.Wait()
}

func (t target) askOne(ctx context.Context, a agent, stdin []byte, command []string) reply {
	ctx, cancel := context.WithTimeout(ctx, nodeTimeout)
	defer cancel()
	r := reply{agent: a}
	cmd := t.exec(ctx, a, command)
	if stdin != nil {
		cmd = t.exec(ctx, a, command, "--stdin")
		cmd.Stdin = bytes.NewReader(stdin)
	}
	var answer, errs bounded
	cmd.Stdout, cmd.Stderr = &answer, &errs
	err := cmd.Run()
	if answer.over || errs.over {
		r.code, r.Fault = 2, errTooLarge.Error()
		return r
	}
	out, text := answer.all.Bytes(), ""
	r.out = out
	switch r.code, text, err = t.codeOf(err, errs.all.Bytes()); {
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		r.Fault = fmt.Sprintf("no answer within %s", nodeTimeout)
	case err != nil:
		r.Fault, r.cut = err.Error(), true
	case len(out) > 0 && !whole(out):
		r.Fault, r.cut = "the end of the answer is missing", true
	case r.code > 1 || r.code == 1 && len(out) == 0:
		r.Fault = fmt.Sprintf("exit code %d: %s", r.code, text)
	}
	r.Fault = printable.Lines(r.Fault) // a compromised node writes what it likes
	return r
}

// maxAnswer bounds what a node answers, as the client of an agent's socket does: a compromised node can send without end.
const maxAnswer = 64 << 20

var errTooLarge = fmt.Errorf("the answer is too large: more than %d MiB", maxAnswer>>20)

// bounded is a buffer of at most maxAnswer bytes.
type bounded struct {
	all  bytes.Buffer
	over bool
}

// Write fails beyond the bound, which ends the process that writes.
func (b *bounded) Write(data []byte) (int, error) {
	if b.over = b.over || b.all.Len()+len(data) > maxAnswer; b.over {
		return 0, errTooLarge
	}
	return b.all.Write(data)
}

// whole reports whether an answer is complete, as far as its form shows it: text can end
// anywhere.
func whole(out []byte) bool {
	switch {
	case out[0] == '{' || out[0] == '[':
		return json.Valid(out)
	case bytes.HasPrefix(out, []byte("\x1f\x8b")): // RFC 1952: gzip
		z, err := gzip.NewReader(bytes.NewReader(out))
		if err == nil {
			_, err = io.Copy(io.Discard, z)
		}
		return err == nil
	}
	return out[len(out)-1] == '\n'
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
	printable.All(into) // a compromised node writes what it likes
	return true
}

// errNoAnswer is the error of a command that some nodes have not answered: exit code 2.
func errNoAnswer(missing, of int) error {
	if missing == 0 {
		return nil
	}
	return fmt.Errorf("%d of %d nodes gave no answer", missing, of)
}
