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
)

// mostReasons bounds the reasons and examples that are printed of one pair of states.
const mostReasons = 5

// proofs add up the proofs over the nodes and steps of a table.
type proofs struct {
	pairs []*pair
	// prove returns the certificate for two states of the node with an agent.
	prove func(ctx context.Context, socket, a, b string) (*prove.Result, error)
}

// pair is two states that are proved equal, on each node and in each step.
type pair struct {
	a, b         string
	proved, left int
	// reasons say what is not proved, differs has an example of each difference.
	reasons, differs []string
}

// newProofs compares what is programmed with what is wanted, and that with what the other backends want.
func newProofs(backend string) *proofs {
	p := &proofs{pairs: []*pair{{a: "live", b: "wanted"}}, prove: proveBySocket}
	for _, other := range []string{config.NFTables, config.IPTables, config.OpenFlow} {
		if !strings.HasPrefix(backend, other) {
			p.pairs = append(p.pairs, &pair{a: "wanted", b: "backend:" + other})
		}
	}
	return p
}

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
	case errors.As(err, &refused):
		reasons = []string{refused.Place + ": " + refused.Reason}
	case err != nil:
		reasons = []string{err.Error()}
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

// print prints what is proved, and returns ErrDisagreement if states differ.
func (p *proofs) print(w io.Writer) error {
	differ := 0
	for _, one := range p.pairs {
		fmt.Fprintf(w, "%s and %s: proved equal for all packets in %d of %s of a node\n", one.a, one.b, one.proved, plural(one.proved+one.left, "state"))
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
