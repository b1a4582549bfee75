package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/tables/nftables"
)

// showRules prints what a packet of the pod meets: where its addresses are
// dispatched to, and all chains from there on.
func (d *demo) showRules(ctx context.Context, id model.PodID) error {
	pod := d.lab.Pod(id)
	if pod == nil {
		return fmt.Errorf("there is no pod %s", id)
	}
	ns, err := os.Open(pod.Node().Namespace().Path())
	if err != nil {
		return err
	}
	defer ns.Close()
	table := nftables.New(nftables.Options{NetNS: int(ns.Fd())})
	snapshot, err := table.Snapshot(ctx)
	if err = errors.Join(err, table.Close()); err != nil {
		return fmt.Errorf("read the rules of %s: %w", pod.Node().Name(), err)
	}
	address := pod.Address(d.family).String()
	var todo []string
	for _, m := range snapshot.Maps {
		for _, e := range m.Entries {
			if e.Address == address {
				fmt.Fprintf(d.out, "map %s: %s %s\n", d.style.bold(m.Name), e.Address, e.Verdict)
				todo = append(todo, target(e.Verdict))
			}
		}
	}
	for i := 0; i < len(todo); i++ {
		chain := snapshot.Chain(todo[i])
		if chain == nil || slices.Contains(todo[:i], todo[i]) {
			continue
		}
		rows := [][]string{{"  HASH", "PACKETS", "VERDICT", "WHAT FOR"}}
		for _, r := range chain.Rules {
			rows = append(rows, []string{"  " + r.Hash, fmt.Sprint(r.Packets), r.Verdict, r.Comment})
			todo = append(todo, target(r.Verdict))
		}
		fmt.Fprintf(d.out, "\nchain %s\n", d.style.bold(chain.Name))
		if err := printTable(d.out, rows); err != nil {
			return err
		}
	}
	return nil
}

// target returns the chain that a verdict jumps or goes to, or "".
func target(verdict string) string {
	for _, verb := range []string{"jump ", "goto "} {
		if chain, ok := strings.CutPrefix(verdict, verb); ok {
			return chain
		}
	}
	return ""
}
