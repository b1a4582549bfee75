package hosts

import (
	"context"
	"encoding/json"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/felixlike/felixlike/felixlike/backend"
	"github.com/felixlike/felixlike/felixlike/control"
	"github.com/felixlike/felixlike/felixlike/driver"
	"github.com/felixlike/felixlike/felixlike/driver/drivertest"
	"github.com/felixlike/felixlike/felixlike/driver/moduletest"
	"github.com/felixlike/felixlike/felixlike/hosts/boot"
	"github.com/felixlike/felixlike/test/eventually"
)

// TestBoot: the program that a node runs when it boots loads the confirmed policies, without an agent, and the agent takes them over without an open
// moment. It loads no policies in a trial, none while they are off, and none of which it does not know the failsafe ports.
func TestBoot(t *testing.T) {
	program := filepath.Join(t.TempDir(), "felixlike-cni")
	if out, err := exec.Command("go", "build", "-o", program, "../../cmd/felixlike-cni").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	w := newWorld(t)
	boots := func(want string) {
		t.Helper()
		w.at["node"].Run(t, "nft", "flush", "ruleset")
		if got := w.at["node"].Run(t, program, boot.Command, w.dir); !strings.Contains(got, want) {
			t.Errorf("prints %q, want %q", got, want)
		}
	}
	open := func() {
		t.Helper()
		if table := w.table(); table != "" || w.reaches("peer", "node", "80") != "46" {
			t.Errorf("not open:\n%s", table)
		}
	}
	closed := func() {
		t.Helper()
		for way, want := range map[[3]string]string{{"peer", "node", "80"}: "", {"peer", "node", "22"}: "46", {"node", "peer", "6443"}: "46", {"node", "node", "80"}: "46"} {
			if got := w.reaches(way[0], way[1], way[2]); got != want {
				t.Errorf("%v: open in families %q, want %q", way, got, want)
			}
		}
	}
	boots("nothing: no policy of this node is confirmed")
	open()
	t.Run("confirmed", func(t *testing.T) {
		a := w.start(t, w.api, time.Second)
		a.Begin(t, policyOf(t, "in", in))
		a.awaits(t, control.HostsConfirmed)
	})
	t.Run("in the trial", func(t *testing.T) {
		a := w.start(t, w.api, time.Hour)
		a.Begin(t, policyOf(t, "in", in), policyOf(t, "out", out))
		eventually.True(t, "cut off", func() bool { return w.api(t.Context()) != nil })
	})
	boots("the policies of this node that were confirmed last are in force: 1")
	closed()
	if got := w.at["node"].Run(t, program, boot.Command, w.dir); !strings.Contains(got, "nothing: the policies of this node are in force") {
		t.Errorf("a second time: %q", got)
	}

	t.Run("taken over", func(t *testing.T) {
		stop, opened := make(chan struct{}), make(chan int)
		go func() {
			n := 0
			for {
				select {
				case <-stop:
					opened <- n
					return
				default:
				}
				if c, err := w.dial("peer", net.JoinHostPort(addresses["node"][0], "80"), 50*time.Millisecond); err == nil {
					n++
					_ = c.Close()
				}
			}
		}()
		a := w.start(t, w.api, time.Second)
		a.Begin(t, policyOf(t, "in", in))
		a.awaits(t, control.HostsConfirmed)
		close(stop)
		if n := <-opened; n > 0 {
			t.Errorf("%d connections passed", n)
		}
	})

	record := filepath.Join(w.dir, boot.RecordFile)
	good, err := os.ReadFile(record)
	if err != nil {
		t.Fatal(err)
	}
	write := func(name string, data []byte) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(w.dir, name), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(boot.PreviousFile, good)
	write(boot.RecordFile, good[:len(good)/2])
	boots("from the record before the last one, which cannot be read")
	closed()
	write(boot.RecordFile, good)
	write(boot.OffFile, nil)
	boots("nothing: felixctl hosts off")
	open()
	if err := os.Remove(filepath.Join(w.dir, boot.OffFile)); err != nil {
		t.Fatal(err)
	}
	var old boot.Record
	if err := json.Unmarshal(good, &old); err != nil || old.Failsafe == nil || old.Failsafe.In[0] != failsafe().In[0] {
		t.Fatalf("recorded failsafe ports %+v, %v", old.Failsafe, err)
	}
	old.Failsafe = nil
	data, err := json.Marshal(old)
	if err != nil {
		t.Fatal(err)
	}
	write(boot.RecordFile, data)
	w.at["node"].Run(t, "nft", "flush", "ruleset")
	if out, err := exec.Command("ip", "netns", "exec", w.at["node"].Name, program, boot.Command, w.dir).CombinedOutput(); err == nil || !strings.Contains(string(out), "no failsafe ports") {
		t.Errorf("without failsafe ports: %v: %s", err, out)
	}
	open()
	// An agent that starts adds them.
	t.Run("started", func(t *testing.T) {
		w.start(t, w.api, time.Second)
		eventually.True(t, "recorded", func() bool { return w.record().Failsafe != nil })
	})
	boots("the policies of this node that were confirmed last are in force: 1")
	closed()
}

// TestKilledInWithdrawal: an agent that ends after it has recorded a withdrawal, and before the table is without the policy, leaves the trial to the next one.
func TestKilledInWithdrawal(t *testing.T) {
	w := newWorld(t)
	const within = 500 * time.Millisecond
	t.Run("killed", func(t *testing.T) {
		var hangs atomic.Bool
		first := drivertest.NewTable(t).Stage()
		apply := first.Apply
		first.Apply = func(ctx context.Context) (backend.Applied, error) {
			if hangs.Load() {
				<-ctx.Done()
			}
			return apply(ctx)
		}
		o := Options{Dir: w.dir, Failsafe: failsafe(), Reach: w.api, Within: within, Log: slog.New(slog.DiscardHandler)}
		o.Table = backend.NewHosts(backend.Config{Node: "node1", NetNS: w.at["node"].FD}, o.Failsafe)
		v := &driver.View{}
		m := New(v, o)
		a := &agent{moduletest.Start(t, driver.Config{Stages: []backend.Stage{first, o.Table.Stage()}}, v, m.Module()), w}
		a.Begin(t, policyOf(t, "in", in))
		a.awaits(t, control.HostsConfirmed)
		a.Source.Send(true, policyOf(t, "out", out))
		eventually.True(t, "cut off", func() bool { return w.api(t.Context()) != nil })
		hangs.Store(true)
		eventually.True(t, "the withdrawal is recorded", func() bool { return w.record().Withdrawn != "" })
		if w.api(t.Context()) == nil {
			t.Error("the table is restored: nothing is tested")
		}
	})
	t.Run("next", func(t *testing.T) {
		w.start(t, w.api, within)
		eventually.True(t, "withdrawn", func() bool { return w.api(t.Context()) == nil && w.reaches("peer", "node", "80") == "" })
	})
}
