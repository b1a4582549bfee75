package e2e

import (
	"net"
	"testing"

	"github.com/felixlike/felixlike/felixlike/config"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/test/eventually"
	"github.com/felixlike/felixlike/test/lab"
)

// through reports whether x/c reaches x/a on port 80 over both families.
func through(t *testing.T, l *lab.Lab) bool {
	t.Helper()
	return probe(t, l, "x/c", "x/a", model.TCP, 80)
}

// TestSwitchCrash kills ovs-vswitchd, which takes all flows with it: when it
// is back, the agent puts them back by itself, connections go on, and policy
// was never open.
func TestSwitchCrash(t *testing.T) {
	t.Parallel()
	inEachPlace(t, switchCrash)
}

func switchCrash(t *testing.T, l *lab.Lab) {
	set(t, l, state(t, threeNodes, onlyFromC))
	var conns []net.Conn
	for _, f := range model.Families() {
		conns = append(conns, dial(t, l, "c", "a", f))
	}
	ovs := l.Node("node1").OVS()
	if err := ovs.KillVSwitchd(); err != nil {
		t.Fatal(err)
	}
	expect(t, l, false, "x/c", "x/a", model.TCP, 80)
	if err := ovs.StartVSwitchd(t.Context()); err != nil {
		t.Fatal(err)
	}
	expect(t, l, false, "x/b", "x/a", model.TCP, 80)
	eventually.True(t, "traffic after the switch came back", func() bool { return through(t, l) })
	expect(t, l, false, "x/b", "x/a", model.TCP, 80)
	for _, c := range conns {
		talk(t, c, "after the switch came back")
	}
}

// TestDatabaseRestart restarts ovsdb-server: the agent must not take the
// attachments for gone, and sees new ones afterwards.
func TestDatabaseRestart(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	set(t, l, state(t, threeNodes, onlyFromC))
	before := writes(t, l, config.NFTables)
	if err := l.Node("node1").OVS().RestartDB(t.Context()); err != nil {
		t.Fatal(err)
	}
	// A busy ovs-vswitchd may forward late while it reads the database again. The number of writes below shows that the agent repairs nothing.
	eventually.True(t, "x/c reaches x/a after the restart of the database", func() bool { return through(t, l) })
	set(t, l, state(t, threeNodes, onlyFromC))
	if after := writes(t, l, config.NFTables); before != after {
		t.Errorf("writes before %s, after %s", before, after)
	}
	set(t, l, state(t, threeNodes, onlyFromC, newcomer))
	expect(t, l, true, "x/b", "x/e", model.UDP, 80)
}
