package backend

import (
	"context"
	"errors"
	"time"

	"github.com/felixlike/felixlike/managers"
	"github.com/felixlike/felixlike/rules"
	"github.com/felixlike/felixlike/tables/nftables/maps"
)

// ServicesStage is the stage of the table of Services.
const ServicesStage = "services"

// Services returns the stage of the table that leads connections to Services to their endpoints. It is the same beside every
// backend. If another program serves them, it removes a table of ours.
//
// It writes nothing before a model.ServiceHealthUpdate has come behind all ports: connections go on through the table of the
// process before.
func Services(c Config) Stage {
	table := maps.New(maps.Options{Table: rules.ServicesTable, NetNS: c.NetNS})
	if !c.ServiceProxy {
		return Stage{Name: ServicesStage, StartupOnly: true, BestEffort: true, Timeout: 10 * time.Second, Apply: func(context.Context) (Applied, error) {
			gone, err := table.Delete()
			if err = errors.Join(err, table.Close()); !gone {
				return Applied{}, nil // without nf_tables there is no table
			}
			return Applied{Writes: 1}, err
		}}
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
			did, err := table.Apply(ctx)
			return applied(did), err
		},
	}
}

// ServiceManager returns the manager of that table.
func ServiceManager(c Config, table managers.ServiceTable) *managers.ServiceManager {
	return managers.NewServiceManager(c.Node, c.NodePortAddresses, table)
}
