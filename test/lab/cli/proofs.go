package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	dumpcli "github.com/felixlike/felixlike/cmd/felixctl/dump/cli"
	"github.com/felixlike/felixlike/cmd/felixctl/prove"
	"github.com/felixlike/felixlike/felixlike/config"
	"github.com/felixlike/felixlike/test/lab"
	"github.com/felixlike/felixlike/test/lab/verify"
)

// mostReasons bounds the reasons and examples that are printed of one pair of states.
const mostReasons = 5

// proofs add up the proofs over the nodes and steps of a table.
type proofs struct {
	pairs []*pair
	// steps is the number of steps, from the first, after which it proves.
	steps int
	// prove returns the certificate for two states of the node with an agent.
	prove func(ctx context.Context, socket, a, b string) (*prove.Result, error)
}

// pair is two states that are proved equal, on each node and in each step.
type pair struct {
	a, b         string
	proved, left int
	// reasons says why states are not proved equal. differs has an example of each difference.
	reasons, differs []string
	failed           []error
}

// newProofs compares the programmed state with the desired state, and the desired state with the desired states of the other backends.
func newProofs(backend string, steps int) *proofs {
	p := &proofs{steps: steps, pairs: []*pair{{a: "live", b: "wanted"}}, prove: proveBySocket}
	for _, other := range []string{config.NFTables, config.IPTables, config.OpenFlow} {
		if !strings.HasPrefix(backend, other) {
			p.pairs = append(p.pairs, &pair{a: "wanted", b: "backend:" + other})
		}
	}
	return p
}

// after reports whether to prove after a step, by its number from 1.
func (p *proofs) after(number int, o verify.Outcome) bool { return o.Reached && number <= p.steps }

// add proves the states of the nodes. place names the step.
func (p *proofs) add(ctx context.Context, place string, nodes []*lab.Node) {
	for _, n := range nodes {
		for _, one := range p.pairs {
			r, err := p.prove(ctx, n.ControlSocket(), one.a, one.b)
			one.add(place+", "+n.Name(), r, err)
		}
	}
}

func (o *pair) add(place string, r *prove.Result, err error) {
	var refused *prove.NotProved
	var reasons []string
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		reasons = []string{"the proof takes longer than its timeout"}
	case errors.As(err, &refused):
		reasons = []string{refused.Place + ": " + refused.Reason}
	case err != nil:
		o.failed = append(o.failed, fmt.Errorf("prove %s and %s: %s: %w", o.a, o.b, place, err))
	default:
		reasons = r.NotProved
		for _, d := range r.Differences {
			o.differs = append(o.differs, fmt.Sprintf("%s: %s: %s: %s, %s: %s", place, d.Packet, o.a, d.A, o.b, d.B))
		}
		if len(reasons)+len(r.Differences) == 0 {
			o.proved++
			return
		}
	}
	o.left++
	for _, why := range reasons {
		if !slices.Contains(o.reasons, why) {
			o.reasons = append(o.reasons, why)
		}
	}
}

// print prints what is proved. It returns the first failure of each pair; without one, ErrDisagreement if states differ.
func (p *proofs) print(w io.Writer) error {
	if p.steps == 0 {
		return nil
	}
	var failed []error
	differ := 0
	for _, one := range p.pairs {
		fmt.Fprintf(w, "%s and %s: proved equal for all packets in %d of %s\n", one.a, one.b, one.proved, plural(one.proved+one.left, "comparison"))
		lines := func(what string, all []string) {
			for i, text := range all {
				if i == mostReasons {
					fmt.Fprintf(w, "  ... and %d more\n", len(all)-i)
					break
				}
				fmt.Fprintf(w, "  %s: %s\n", what, text)
			}
		}
		lines("not proved", one.reasons)
		lines("DIFFERENT", one.differs)
		differ += len(one.differs)
		if n := len(one.failed); n > 0 {
			failed = append(failed, fmt.Errorf("%s failed, the first: %w", plural(n, "proof"), one.failed[0]))
		}
	}
	if len(failed) > 0 {
		return errors.Join(failed...)
	}
	if differ > 0 {
		return fmt.Errorf("proofs found %s: %w", plural(differ, "difference"), ErrDisagreement)
	}
	return nil
}

// proveBySocket runs felixctl prove in this process.
func proveBySocket(ctx context.Context, socket, a, b string) (*prove.Result, error) {
	c := dumpcli.ProveCommand()
	var out bytes.Buffer
	c.SetArgs([]string{a, b, "--socket", socket, "--output", "json"})
	c.SetOut(&out)
	c.SetErr(io.Discard)
	c.SilenceUsage, c.SilenceErrors = true, true
	if err := c.ExecuteContext(ctx); err != nil && !errors.Is(err, dumpcli.ErrDifferent) && !errors.Is(err, dumpcli.ErrPartly) {
		return nil, err
	}
	var r prove.Result
	if err := json.Unmarshal(out.Bytes(), &r); err != nil {
		return nil, fmt.Errorf("read the certificate: %w", err)
	}
	return &r, nil
}
