package e2e

import (
	"io"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/felixlike/felixlike/felixlike/config"
	"github.com/felixlike/felixlike/felixlike/control"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/test/eventually"
	"github.com/felixlike/felixlike/test/lab"
)

// TestFoundBackendIsGivenUp: if the backend that an agent finds in force cannot be programmed for a minute, here because another program owns the table, the
// agent begins again with the configured one. What it cannot remove it names.
func TestFoundBackendIsGivenUp(t *testing.T) {
	t.Parallel()
	l := newLabWith(t, lab.Config{Backend: config.NFTables})
	set(t, l, state(t, threeNodes, onlyFromC))
	n := l.Node("node1")
	if err := n.StopAgent(); err != nil {
		t.Fatal(err)
	}
	shell(t, n, "nft delete table inet felixlike")
	owner := exec.Command("nft", "-i")
	commands, err := owner.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := n.Namespace().Do(owner.Start); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = commands.Close(), owner.Wait() }) // and the table goes
	if _, err := io.WriteString(commands, "add table inet felixlike { flags owner; }\n"); err != nil {
		t.Fatal(err)
	}
	eventually.True(t, "the table is there", func() bool { return strings.Contains(shell(t, n, "nft list tables"), "felixlike\n") })
	n.Settings().Backend = config.OpenFlow
	began := time.Now()
	if err := n.StartAgent(); err != nil {
		t.Fatal(err)
	}
	inForce := func() control.Status {
		s, _ := control.NewClient(n.ControlSocket()).Status(t.Context()) // it may begin again just now
		return s
	}
	eventually.True(t, "the agent begins with nftables", func() bool { s := inForce(); return s.Backend == config.NFTables && s.Configured == config.OpenFlow })
	eventually.True(t, "the agent begins again with openflow", func() bool { return inForce().Backend == config.OpenFlow })
	if took := time.Since(began); took < time.Minute {
		t.Errorf("nftables was given up after %s", took)
	}
	eventually.True(t, "what cannot be removed is named", func() bool {
		ready, why := readiness(t, n)
		return !ready && strings.Contains(why, "objects of a backend that is not in force cannot be removed")
	})
	_ = commands.Close()
	eventually.True(t, "the agent is ready", func() bool { ready, _ := readiness(t, n); return ready })
	expect(t, l, true, "x/c", "x/a", model.TCP, 80)
	expect(t, l, false, "x/b", "x/a", model.TCP, 80)
	nothingLeft(t, n, config.OpenFlow)
}
