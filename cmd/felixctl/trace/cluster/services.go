package cluster

import (
	"fmt"
	"hash/maphash"
	"os"

	"github.com/felixlike/felixlike/managers"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/rules"
	"github.com/felixlike/felixlike/tables/nftables/kernel"
)

// Services reads the elements of the node's table of Services of a family.
func (n *Node) Services(f model.Family) (managers.ServiceElements, error) {
	if n.Elsewhere() {
		return nil, fmt.Errorf("%s translates the packet: trace there", n.Name)
	}
	ns, err := os.Open(n.NetNS)
	if err != nil {
		return nil, err
	}
	defer ns.Close()
	conn, err := kernel.Dial(kernel.Options{NetNS: int(ns.Fd()), Table: rules.ServicesTable, Seed: maphash.MakeSeed()})
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	all := managers.ServiceElements{}
	for _, s := range rules.ServiceSets(f) {
		if s.Verdicts {
			continue
		}
		start := func() { all[s.Name] = map[string]string{} }
		if err := conn.ReadElements(rules.ServicesTable, &s, start, func(e kernel.Element) { all[s.Name][e.Key] = e.Value }); err != nil {
			return nil, fmt.Errorf("read the table of Services of %s, set %s: %w", n.Name, s.Name, err)
		}
	}
	return all, nil
}
