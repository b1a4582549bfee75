package backend

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"

	"github.com/felixlike/felixlike/managers"
	"github.com/felixlike/felixlike/ovsfwd/conntrack"
	"github.com/felixlike/felixlike/rules"
	"github.com/felixlike/felixlike/tables/nftables"
	"github.com/felixlike/felixlike/tables/nftables/maps"
)

// ServicesStage is the stage of the table of Services.
const ServicesStage = "services"

// EndServicesStage is the stage that ends connections which the bridge led to former endpoints.
const EndServicesStage = "services-bridge"

// LeaveServicesStage is the stage before the forwarding flows, in which connections that the bridge leads to Services change their way.
const LeaveServicesStage = "services-leave"

// Services returns the stage of the table that leads connections to Services to their endpoints. It is the same beside every
// backend. If another program serves them, it removes a table of ours.
//
// It writes nothing before a model.ServiceHealthUpdate has come behind all ports: connections go on through the table of the
// process before.
func Services(c Config) Stage {
	s, _ := services(c, endStranded)
	return s
}

// EndServices forgets those of the connections that the bridge leads to Services that are wrong, and returns their number. It reports false if it has to
// be asked again.
type EndServices func(ctx context.Context, wrong func(*conntrack.Connection) bool) (int, bool, error)

// ServicesBesideBridge is Services with a stage that comes behind the flows of the bridge, and ends the connections that these led to former endpoints.
func ServicesBesideBridge(c Config, end EndServices) (table, connections Stage) {
	table, m := services(c, endStranded)
	return table, Stage{Name: EndServicesStage, BestEffort: true, Timeout: 30 * time.Second, Apply: Writes(func(ctx context.Context) (int, error) {
		if m == nil || !m.Known() {
			return 0, nil
		}
		stranded := m.StrandedInBridge()
		if stranded == nil {
			return 0, nil
		}
		n, done, err := end(ctx, stranded)
		if done {
			m.Ended()
		}
		return n, err
	})}
}

func services(c Config, endStranded func(netns int, m *managers.ServiceManager) (int, error)) (Stage, *managers.ServiceManager) {
	table := maps.New(maps.Options{Table: rules.ServicesTable, NetNS: c.NetNS})
	if !c.ServiceProxy {
		return Stage{Name: ServicesStage, StartupOnly: true, BestEffort: true, Timeout: 10 * time.Second, Apply: func(context.Context) (Applied, error) {
			gone, err := table.Delete()
			if nftables.Missing(err) {
				err = nil // without nf_tables there is no table
			}
			if err = errors.Join(err, table.Close()); !gone {
				return Applied{}, err
			}
			return Applied{Writes: 1}, err
		}}, nil
	}
	m := ServiceManager(c, table)
	return Stage{
		Name: ServicesStage, Required: true, Timeout: time.Minute,
		Managers:   []managers.Manager{m},
		Invalidate: table.Invalidate, Watch: table.Watch,
		Apply: func(ctx context.Context) (Applied, error) {
			if !m.Known() {
				return Applied{}, nil
			}
			result, err := table.Apply(ctx)
			did := applied(result)
			if len(result.Repaired) > 0 {
				m.Repaired()
			}
			if err == nil {
				var ended int
				// New connections are led to the right endpoints by now.
				if ended, err = endStranded(c.NetNS, m); err != nil {
					err = Incomplete{fmt.Errorf("end flows to former endpoints of services: %w", err)}
				}
				did.Writes += ended
			}
			return did, err
		},
	}, m
}

// endStranded forgets the flows that lead past the endpoints of their Services, and returns their number. The table has the new
// endpoints by now, so no new flow leads past them. If such a flow can exist, it reads all connections.
func endStranded(netns int, m *managers.ServiceManager) (ended int, err error) {
	stranded := m.Stranded()
	if stranded == nil {
		return 0, nil
	}
	err = inNamespace(netns, func() error {
		addresses, err := net.InterfaceAddrs()
		if err != nil {
			return fmt.Errorf("list addresses of this node: %w", err)
		}
		local := map[netip.Addr]bool{}
		for _, a := range addresses {
			if p, err := netip.ParsePrefix(a.String()); err == nil {
				local[p.Addr()] = true
			}
		}
		k, err := conntrack.OpenKernel()
		if err != nil {
			return err
		}
		defer k.Close()
		var found []conntrack.Connection
		if err := k.Dump(func(c conntrack.Connection) {
			if stranded(&c, func(a netip.Addr) bool { return local[a] }) {
				found = append(found, c)
			}
		}); err != nil {
			return err
		}
		ended, err = k.Delete(found)
		return err
	})
	if err == nil {
		m.Reconciled()
	}
	return ended, err
}

// ServiceManager returns the manager of that table.
func ServiceManager(c Config, table managers.ServiceTable) *managers.ServiceManager {
	m := managers.NewServiceManager(c.Node, c.NodePortAddresses, table)
	if c.Multitenant() {
		m.EndTCP()
	}
	return m
}
