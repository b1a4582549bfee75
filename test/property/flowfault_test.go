package property

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/felixlike/felixlike/felixlike/backend"
	"github.com/felixlike/felixlike/felixlike/config"
	"github.com/felixlike/felixlike/internal/seeded"
	"github.com/felixlike/felixlike/managers"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/ovsfwd/openflow"
	"github.com/felixlike/felixlike/ovsfwd/pipeline"
	"github.com/felixlike/felixlike/ovsfwd/policyflows"
	"github.com/felixlike/felixlike/test/policytest"
)

// faultySwitch is a connection over which some flows are refused.
type faultySwitch struct {
	*openflow.Conn
	refuses func(openflow.Flow) bool
}

// Bundle sends the changes, unless one of them is refused.
func (f *faultySwitch) Bundle(ctx context.Context, mods iter.Seq2[openflow.FlowMod, error]) error {
	refused := &openflow.BundleError{}
	for m, err := range mods {
		if err == nil && m.Command == openflow.Add && f.refuses(m.Flow) {
			refused.Refusals = append(refused.Refusals, openflow.Refusal{Mod: m, Reason: errRefused.Error()})
		}
	}
	if len(refused.Refusals) > 0 {
		return refused
	}
	return f.Conn.Bundle(ctx, mods)
}

// refuseFlows puts a backend over a faulty switch in the place of a dataplane's
// own, without the host's table.
func (d *dataplane) refuseFlows(refuses func(openflow.Flow) bool) error {
	conn, err := openflow.Dial(d.bridge.context(), d.bridge.management())
	if err != nil {
		return err
	}
	d.closers = append(d.closers, conn.Close)
	faulty := &faultySwitch{conn, refuses}
	table := openflow.NewFlowTable(pipeline.PolicyOwner, pipeline.Version)
	table.Connect(faulty)
	store := policyflows.New(policyflows.Options{Flows: table})
	programmer := policyflows.NewProgrammer(store, table)
	policies := managers.NewSwitchPolicyManager(d.node, store)
	d.backend = faultyBackend{
		name: config.OpenFlow, forwarded: policies.Forwarded,
		stage: backend.Stage{
			Name: "policy over a faulty switch", Managers: []managers.Manager{policies},
			Invalidate: func() { table.Connect(faulty) },
			Apply: func(ctx context.Context) (backend.Applied, error) {
				r, err := programmer.Apply(ctx)
				return backend.Applied{Writes: r.Messages, Refused: r.Refused}, err
			},
		},
	}
	return nil
}

// closedPods are the pods of the policies that are quarantined, by direction.
type closedPods map[model.Direction]map[string]bool

func (d *dataplane) applyFaulty(rt *rapid.T) closedPods {
	closed := closedPods{model.Ingress: {}, model.Egress: {}}
	done, err := d.apply()
	if err != nil {
		rt.Fatalf("%s: %v", d.node, err)
	}
	for _, r := range done.Refused {
		for _, pod := range r.Closed {
			for direction := range closed {
				if direction.String() == r.Rule {
					closed[direction][pod] = true
				}
			}
		}
	}
	return closed
}

// closes reports whether one end of a hop is a pod that is closed.
func (c closedPods) closes(d *dataplane, h hop) bool {
	for id, addresses := range d.attached {
		if slices.Contains(addresses, h.in.address) && c[model.Egress][id.String()] ||
			slices.Contains(addresses, h.out.address) && c[model.Ingress][id.String()] {
			return h.in.side != ownNode && h.out.side != ownNode
		}
	}
	return false
}

// TestRefusedFlowsCloseWhatTheyConcern has the switch refuse flows at random. The
// pods of their policies are closed, in that direction, and all
// other packets are judged as ever.
func TestRefusedFlowsCloseWhatTheyConcern(t *testing.T) {
	t.Parallel()
	b := newTestbed(t, config.OpenFlow)
	var fault faults
	refuses := func(f openflow.Flow) bool {
		named := f.Table != pipeline.TableEgressDefault && f.Table != pipeline.TableIngressDefault && f.Table != pipeline.TableOutput &&
			strings.Contains(f.String(), "conj")
		return fault.oneIn > 0 && named && fault.chosen(f.String(), fault.oneIn)
	}
	for _, name := range b.names() {
		if err := b.sites[name].plane().refuseFlows(refuses); err != nil {
			t.Fatal(err)
		}
	}
	concerned, others := 0, 0
	seeded.Checks(t, 40, func(rt *rapid.T) {
		fault = faults{seed: rapid.Uint64().Draw(rt, "faults"), oneIn: rapid.Uint64Range(2, 30).Draw(rt, "one in")}
		before := b.cluster
		b.cluster = crowdedCluster(rt)
		closed := map[string]closedPods{}
		for _, name := range b.names() {
			d := b.sites[name].plane()
			d.become(before, b.cluster)
			closed[name] = d.applyFaulty(rt)
		}
		all := b.connections(policytest.Packets(rt, b.cluster))
		for i := range all {
			for j, h := range all[i].hops {
				if closed[h.site].closes(b.sites[h.site].plane(), h) {
					concerned++
					all[i].hops[j].allowed = false
				} else {
					others++
				}
			}
		}
		b.send(rt, "with refused flows", all, there, func(h hop) bool { return h.allowed })
	})
	t.Logf("%d packets of closed pods, %d others", concerned, others)
	if concerned == 0 || others == 0 {
		t.Error("nothing was tested")
	}
}

// tamper deletes some flows of the agent and swaps the actions of others, as
// an administrator with ovs-ofctl would, and returns their number.
func (o *ovs) tamper(random *rand.Rand) (int, error) {
	installed, err := o.flows()
	if err != nil {
		return 0, err
	}
	touched := 0
	for flow := range strings.Lines(installed) {
		match, actions, _ := strings.Cut(strings.TrimSpace(flow), " actions=")
		cookie, rest, _ := strings.Cut(match, ", ")
		switch n := random.IntN(20); {
		case n == 0:
			_, err = o.ofctl("del-flows", "--strict", rest)
		case n == 1 && actions != "drop":
			_, err = o.ofctl("add-flow", fmt.Sprintf("%s,%s actions=drop", cookie, rest))
		default:
			continue
		}
		touched++
		if err != nil {
			return touched, err
		}
	}
	return touched, nil
}

// TestTamperedFlowsAreRepaired deletes flows and changes others behind
// the agent's back. A full apply restores them.
func TestTamperedFlowsAreRepaired(t *testing.T) {
	t.Parallel()
	b := newTestbed(t, config.OpenFlow)
	touched := 0
	seeded.Checks(t, 20, func(rt *rapid.T) {
		b.become(rt, crowdedCluster(rt))
		random := rand.New(rand.NewPCG(rapid.Uint64().Draw(rt, "tamper"), 0))
		for _, name := range b.names() {
			d := b.sites[name].plane()
			before, err := d.bridge.flows()
			n, tampering := d.bridge.tamper(random)
			if err := errors.Join(err, tampering); err != nil {
				rt.Fatal(err)
			}
			touched += n
			d.invalidate()
			if wrote := d.program(rt); n > 0 && wrote == 0 {
				rt.Fatalf("%s: nothing was put right of %d flows", name, n)
			}
			// If the switch reports the tampering only while that goes on, flows that let packets
			// through wait for one more apply. The agent's Watch asks for it.
			after, err := d.bridge.flows()
			for late := time.Now().Add(5 * time.Second); err == nil && after != before && time.Now().Before(late); {
				d.program(rt)
				after, err = d.bridge.flows()
			}
			if diff := cmp.Diff(before, after); err != nil || diff != "" {
				rt.Fatalf("%s: %v\n%s", name, err, diff)
			}
		}
		b.judgeNew(rt, b.connections(policytest.Packets(rt, b.cluster)))
	})
	t.Logf("%d flows tampered with", touched)
	if touched == 0 {
		t.Error("nothing was tested")
	}
}
