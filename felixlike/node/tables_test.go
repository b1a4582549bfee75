package node

import (
	"fmt"
	"testing"

	"github.com/felixlike/felixlike/felixlike/metrics"
	"github.com/felixlike/felixlike/internal/sysctl"
	"github.com/felixlike/felixlike/ovsfwd/vswitchd"
	"github.com/felixlike/felixlike/test/ovstest"
)

// TestLimitedTables reads the tables of this machine and of a real switch.
func TestLimitedTables(t *testing.T) {
	b := ovstest.NewBridge(t)
	read := func() map[string]metrics.Table {
		all := map[string]metrics.Table{}
		for _, one := range LimitedTables(t.Context(), vswitchd.New(b.Daemons.Dir(), "netdev")) {
			all[one.Name] = one
		}
		return all
	}
	limit, err := sysctl.Read("net/netfilter/nf_conntrack_max")
	if got, found := read()["conntrack"]; found != (err == nil) || found && fmt.Sprint(got.Limit) != limit {
		t.Errorf("conntrack: %+v, %v; the setting is %q, %v", got, found, limit, err)
	}
	if got := read()["switch-conntrack"]; got.Limit != 3_000_000 {
		t.Errorf("connections of the switch: %+v", got)
	}
}
