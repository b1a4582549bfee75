// Package boot programs the confirmed policies of the node itself without an agent, from the record that the agent keeps (felixlike/hosts). A node runs it
// when it boots, before its network is up. It must stay small: it is a part of the CNI plugin, which is on each node.
//
// It is tested by the plugin's program, with packets.
package boot

import (
	"context"
	"errors"
	"fmt"

	"github.com/felixlike/felixlike/ipsets"
	"github.com/felixlike/felixlike/managers"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/rules"
	"github.com/felixlike/felixlike/tables"
	"github.com/felixlike/felixlike/tables/nftables"
)

// Command is the argument of felixlike-cni that has it call Load, with Dir as the next one.
const (
	Command = "restore-hosts"
	Dir     = "/var/lib/felixlike/hosts"
)

// errNoFailsafe is the error of a record of an agent that did not write them.
var errNoFailsafe = errors.New("the record has no failsafe ports, so an older agent wrote it: its policies are not loaded without them")

// Load programs the confirmed policies of the record in a directory, in a network namespace, zero for its own, and says what it did. It does nothing if
// there is a table, if an administrator has turned the policies off, or if none are confirmed. Policies whose trial has not ended are not confirmed.
func Load(ctx context.Context, dir string, netns int) (did string, err error) {
	if Off(dir) {
		return "nothing: felixctl hosts off has turned the policies of this node off", nil
	}
	r, fault := Read(dir)
	switch {
	case r.Confirmed.Empty():
		return "nothing: no policy of this node is confirmed", fault
	case r.Failsafe == nil:
		return "", errors.Join(errNoFailsafe, fault)
	}
	table := nftables.New(nftables.Options{Table: nftables.HostsTable, NetNS: netns})
	defer func() { err = errors.Join(err, table.Close()) }()
	s, err := table.Snapshot(ctx)
	switch {
	case err != nil:
		return "", err
	case s.Exists:
		return "nothing: the policies of this node are in force", nil
	}
	refused, err := Program(ctx, table, r.Confirmed, *r.Failsafe, r.TrafficMode)
	if err == nil && Off(dir) { // since this began
		return "nothing: felixctl hosts off has turned the policies of this node off", table.Remove(ctx)
	}
	if err == nil && len(refused) > 0 {
		err = fmt.Errorf("the kernel refuses %s %s and perhaps more, which denies what it would decide: %s", refused[0].Object, refused[0].Name, refused[0].Reason)
	}
	if err != nil {
		return "", err
	}
	did = fmt.Sprintf("the policies of this node that were confirmed last are in force: %d", len(r.Confirmed.Policies))
	if fault != nil {
		did += fmt.Sprintf(", from the record before the last one, which cannot be read: %v", fault)
	}
	return did, nil
}

// Program programs policies into a table. It returns what the kernel refuses.
func Program(ctx context.Context, table *nftables.Table, p *model.HostPolicies, failsafe model.Failsafe, mode model.TrafficMode) ([]tables.Refusal, error) {
	m := Manager(table, table, failsafe, mode)
	m.OnUpdate(model.HostPoliciesUpdate{Policies: p})
	m.CompleteDeferredWork()
	result, err := table.Apply(ctx)
	return result.Refused, err
}

// Manager returns the manager of the table, which renders into chains and sets.
func Manager(chains managers.Chains, sets ipsets.Sets, failsafe model.Failsafe, mode model.TrafficMode) *managers.HostsManager {
	return managers.NewHostsManager(rules.NewRenderer(model.GatewayPort, rules.NFTablesNameLength).Between(mode), chains, sets, failsafe)
}
