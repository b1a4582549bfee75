package uplink

import (
	"errors"
	"fmt"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
)

// shieldTable is the nftables table that has the host take each packet once.
const shieldTable = "felixlike-uplink"

// shieldPriority is before everything else at its hook, connection tracking
// included.
const shieldPriority = -400

// shield has the host pass over what comes by the uplink: the userspace switch reads
// it from there, and hands it to the host by the bridge's local port. The kernel
// would take it a second time, since it accepts what is for its addresses on any
// interface: datagrams would arrive twice, and tunnel packets be answered by "port
// unreachable".
//
// TCP it may take twice, which loses nothing. It has to: what a neighbour on a veth
// or virtio device leaves to offload has no checksum yet, or is larger than the MTU,
// and the switch cannot hand that over ("Dropped packet: Too big. GRO/TSO
// enabled?"). So the kernel's copy is the only good one.
func shield(name string) error {
	conn, err := nftables.New()
	if err != nil {
		return fmt.Errorf("shield of %s: %w", name, err)
	}
	table := conn.AddTable(&nftables.Table{Family: nftables.TableFamilyINet, Name: shieldTable})
	// In one transaction with its making, so that there is one rule however often.
	conn.FlushTable(table)
	priority := nftables.ChainPriority(shieldPriority)
	chain := conn.AddChain(&nftables.Chain{
		Table: table, Name: "prerouting", Type: nftables.ChainTypeFilter,
		Hooknum: nftables.ChainHookPrerouting, Priority: &priority,
	})
	device := make([]byte, unix.IFNAMSIZ)
	copy(device, name)
	conn.AddRule(&nftables.Rule{Table: table, Chain: chain, Exprs: []expr.Any{
		&expr.Meta{Key: expr.MetaKeyIIFNAME, Register: 1},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: device},
		&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: 1},
		&expr.Cmp{Op: expr.CmpOpNeq, Register: 1, Data: []byte{unix.IPPROTO_TCP}},
		&expr.Counter{},
		&expr.Verdict{Kind: expr.VerdictDrop},
	}})
	if err := conn.Flush(); err != nil {
		return fmt.Errorf("shield of %s: %w", name, err)
	}
	return nil
}

// shielded reports whether the shield of an interface is up.
func shielded(name string) (bool, error) {
	conn, err := nftables.New()
	if err != nil {
		return false, fmt.Errorf("look for the shield of %s: %w", name, err)
	}
	table := &nftables.Table{Family: nftables.TableFamilyINet, Name: shieldTable}
	rules, err := conn.GetRules(table, &nftables.Chain{Table: table, Name: "prerouting"})
	if errors.Is(err, unix.ENOENT) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("look for the shield of %s: %w", name, err)
	}
	for _, r := range rules {
		for _, e := range r.Exprs {
			if c, ok := e.(*expr.Cmp); ok && binaryutil.String(c.Data) == name {
				return true, nil
			}
		}
	}
	return false, nil
}

// Unshield takes the shield away; it is no error if there is none.
func Unshield() error {
	conn, err := nftables.New()
	if err != nil {
		return fmt.Errorf("remove the uplink's shield: %w", err)
	}
	conn.DelTable(&nftables.Table{Family: nftables.TableFamilyINet, Name: shieldTable})
	if err := conn.Flush(); err != nil && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("remove the uplink's shield: %w", err)
	}
	return nil
}
