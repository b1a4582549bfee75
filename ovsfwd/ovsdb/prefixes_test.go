package ovsdb

import (
	"fmt"
	"strings"
	"testing"

	"github.com/felixlike/felixlike/test/eventually"
)

// TestPrefixes asserts that tables get rows with the prefixes, that a change by another program is repaired, that rows of
// other programs stay, and that the bridge takes all rows with it.
func TestPrefixes(t *testing.T) {
	f := newFixture(t)
	f.cfg.Prefixes = map[int][]string{45: {"ipv6_dst", "nw_dst", "nw_src"}, 50: {"ipv6_dst", "nw_dst", "nw_src"}, 90: {"ipv6_src", "nw_dst", "nw_src"}}
	vsctl := func(args ...string) string {
		return strings.TrimSpace(f.run("ovs-vsctl", append([]string{"--no-wait", "--db=unix:" + f.ovs.DBSocket()}, args...)...))
	}
	c := f.open()
	state := func() string {
		var all []string
		for _, table := range []string{"45", "50", "90"} {
			row := vsctl("--if-exists", "get", "Bridge", "br-int", "flow_tables:"+table)
			if row == "" {
				return "table " + table + " has no row"
			}
			all = append(all, vsctl("get", "Flow_Table", row, "prefixes"))
		}
		return strings.Join(append(all, fmt.Sprint(len(strings.Fields(vsctl("--bare", "--columns=_uuid", "list", "Flow_Table"))))), " ")
	}
	check := func(when string, rows int) {
		t.Helper()
		want := fmt.Sprintf("[ipv6_dst, nw_dst, nw_src] [ipv6_dst, nw_dst, nw_src] [ipv6_src, nw_dst, nw_src] %d", rows)
		// The client hears of a change by another program a moment later.
		eventually.True(t, when+": "+want, func() bool {
			f.ensure(c)
			return state() == want
		}, state)
		before := c.Writes()
		f.ensure(c)
		if n := c.Writes() - before; n != 0 {
			t.Errorf("%s: a second call writes %d times", when, n)
		}
	}
	check("at first", 2)
	vsctl("clear", "Bridge", "br-int", "flow_tables")
	check("after another program removed the rows", 2)
	vsctl("remove", "Bridge", "br-int", "flow_tables", "50")
	check("after another program removed one of two tables with a row", 2)
	vsctl("clear", "Flow_Table", vsctl("get", "Bridge", "br-int", "flow_tables:90"), "prefixes")
	check("after another program changed a row", 2)
	vsctl("--id=@t", "create", "Flow_Table", "flow_limit=1000", "--", "set", "Bridge", "br-int", "flow_tables:60=@t")
	check("with a row of another program", 3)
	f.cfg.Prefixes[60] = f.cfg.Prefixes[90]
	c = f.open()
	check("with a row of another program for a wanted table", 3)
	if limit := vsctl("get", "Flow_Table", vsctl("get", "Bridge", "br-int", "flow_tables:60"), "flow_limit"); limit != "1000" {
		t.Errorf("the limit of another program is %s", limit)
	}
	if _, err := c.RemoveBridges(f.context()); err != nil {
		t.Fatal(err)
	}
	if left := vsctl("list", "Flow_Table"); left != "" {
		t.Errorf("left after the bridge: %s", left)
	}
}
