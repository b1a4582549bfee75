package felixlike

import (
	"context"
	"errors"
	"log/slog"
	"testing"

	"github.com/felixlike/felixlike/felixlike/backend"
	"github.com/felixlike/felixlike/felixlike/config"
	"github.com/felixlike/felixlike/felixlike/driver/drivertest"
)

// An agent begins with the backend that decides now, if that is clear, and else with the configured one. The connections of the other enforcement point are
// moved if any backend has objects there.
func TestChoose(t *testing.T) {
	const kernel, bridge = backend.InKernel, backend.InSwitch
	for what, c := range map[string]struct {
		configured string
		leads      backend.Place
		// there are the backends with objects.
		there []string
		// fails is the call that fails.
		fails string
		// begins is the backend that the agent begins with.
		begins string
		left   bool
	}{
		"nothing is there":                      {configured: config.NFTables, leads: kernel, begins: config.NFTables},
		"the configured one is in force":        {configured: config.NFTables, leads: kernel, there: []string{config.NFTables}, begins: config.NFTables},
		"another one of the kernel is in force": {configured: config.NFTables, leads: kernel, there: []string{config.IPTablesNFT}, begins: config.NFTables},
		"openflow is in force":                  {configured: config.NFTables, leads: bridge, there: []string{config.OpenFlow}, begins: config.OpenFlow},
		"nftables is in force":                  {configured: config.OpenFlow, leads: kernel, there: []string{config.NFTables}, begins: config.NFTables},
		"killed while nftables was built":       {configured: config.NFTables, leads: bridge, there: []string{config.NFTables, config.OpenFlow}, begins: config.OpenFlow, left: true},
		"killed while openflow was removed":     {configured: config.NFTables, leads: kernel, there: []string{config.NFTables, config.OpenFlow}, begins: config.NFTables, left: true},
		"killed while openflow was built":       {configured: config.OpenFlow, leads: kernel, there: []string{config.NFTables, config.OpenFlow}, begins: config.NFTables, left: true},
		"both variants of iptables":             {configured: config.OpenFlow, leads: kernel, there: []string{config.IPTablesLegacy, config.IPTablesNFT}, begins: config.OpenFlow, left: true},
		"the switch has lost its flows":         {configured: config.NFTables, leads: kernel, there: []string{config.OpenFlow}, begins: config.NFTables, left: true},
		"the switch does not answer":            {configured: config.NFTables, leads: bridge, there: []string{config.OpenFlow}, fails: "leads", begins: config.NFTables, left: true},
		"no look is possible":                   {configured: config.NFTables, leads: bridge, fails: "look", begins: config.NFTables},
		"the backend in force breaks a setting": {configured: config.OpenFlow, leads: kernel, there: []string{config.NFTables}, fails: config.NFTables, begins: config.OpenFlow, left: true},
	} {
		t.Run(what, func(t *testing.T) {
			failed := errors.New("fails")
			placeOf := func(name string) backend.Place {
				if name == config.OpenFlow {
					return bridge
				}
				return kernel
			}
			chosen, err := chooser{
				make: func(name string) (backend.Backend, error) {
					if name == c.fails {
						return nil, failed
					}
					return &drivertest.Backend{NameIs: name, PlaceIs: placeOf(name)}, nil
				},
				elsewhere: func(_ context.Context, place backend.Place) (names []string, err error) {
					if c.fails == "look" {
						return nil, failed
					}
					for _, name := range c.there {
						if placeOf(name) != place {
							names = append(names, name)
						}
					}
					return names, nil
				},
				leads: func(context.Context) (backend.Place, error) {
					if c.fails == "leads" {
						return kernel, failed
					}
					return c.leads, nil
				},
				log: slog.New(slog.DiscardHandler),
			}.choose(t.Context(), c.configured)
			if err != nil {
				t.Fatal(err)
			}
			becomes := ""
			if c.begins != c.configured {
				becomes = c.configured
			}
			if chosen.backend.Name() != c.begins || chosen.becomes != becomes {
				t.Errorf("begins with %s and becomes %q, want %s and %q", chosen.backend.Name(), chosen.becomes, c.begins, becomes)
			}
			if left, err := chosen.left(t.Context()); left != c.left || (err != nil) != (c.fails == "look") {
				t.Errorf("left elsewhere: %v, %v", left, err)
			}
		})
	}
}
