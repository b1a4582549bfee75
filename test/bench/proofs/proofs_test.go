package proofs

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/felixlike/felixlike/test/bench/workload"
)

func small(t *testing.T) workload.Profile {
	t.Helper()
	p, err := workload.FindProfile("small")
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// TestProofsOfNetfilter: the dumps that are measured are whole: netfilter backends are proved equal from them, and the changed policy is found.
func TestProofsOfNetfilter(t *testing.T) {
	got := map[string]string{}
	err := Run(t.Context(), small(t), time.Minute, func(ctx context.Context, env []string, args ...string) ([]byte, time.Duration, error) {
		if !strings.Contains(strings.Join(env, "\n"), memoryLimit) {
			t.Error("without a bound of memory")
		}
		if strings.HasSuffix(args[1], "openflow") {
			data, err := json.Marshal(Measured{Outcome: inPart + "later packets", CPU: TimeGoal, Memory: MemoryGoal})
			return data, 0, err
		}
		var out bytes.Buffer
		err := Prove(ctx, &out, args[:2]...)
		return out.Bytes(), 0, err
	}, func(m Measured) {
		got[m.A+" / "+m.B] = m.Outcome
		if m.CPU <= 0 || m.Memory <= 0 || m.Goal != ChangeGoal && m.Goal != TimeGoal || (m.Goal == ChangeGoal) != (m.B == changedPolicy) {
			t.Errorf("%+v", m)
		}
	})
	if err != nil || len(got) != 8 {
		t.Fatal(err, got)
	}
	for pair, want := range map[string]string{"nftables / nftables maps": equal, "nftables / iptables-nft": equal, "nftables maps / iptables-nft": equal, "nftables / " + changedPolicy: different, changedPolicy + " / " + changedPolicy: equal} {
		if got[pair] != want {
			t.Errorf("%s: %s, want %s", pair, got[pair], want)
		}
	}
}

// TestProofThatDoesNotEnd: it misses its goals, and the others are measured. Another failure ends the run.
func TestProofThatDoesNotEnd(t *testing.T) {
	var all []Measured
	hanging := exec.Command("sh", "-c", "ulimit -t 1; while :; do :; done")
	ended := hanging.Run() // by the kernel, before it counts a whole second in what it reports
	used := hanging.ProcessState.UserTime() + hanging.ProcessState.SystemTime()
	hangs := func(_ context.Context, _ []string, args ...string) ([]byte, time.Duration, error) {
		if args[2] != "1s" {
			t.Errorf("limit %s", args[2])
		}
		return nil, min(used, 999*time.Millisecond), fmt.Errorf("wrapped: %w", ended)
	}
	if err := Run(t.Context(), small(t), time.Second, hangs, func(m Measured) { all = append(all, m) }); err != nil || len(all) != 8 {
		t.Fatal(err, all)
	}
	for _, m := range all {
		if m.TimeMet || m.MemoryMet || m.Outcome != notCompleted || m.CPU < time.Second*3/4 {
			t.Errorf("%+v", m)
		}
	}
	if reached(time.Minute, used, ended) || reached(time.Second, time.Second, exec.Command("false").Run()) {
		t.Error("another end is taken for the limit")
	}
	failed := errors.New("no memory")
	fails := func(context.Context, []string, ...string) ([]byte, time.Duration, error) { return nil, 0, failed }
	if err := Run(t.Context(), small(t), time.Minute, fails, func(Measured) { t.Error("measured") }); !errors.Is(err, failed) {
		t.Error(err)
	}
}

// TestGoals: a goal is met up to its bound, and only by a proof that has a result.
func TestGoals(t *testing.T) {
	for _, test := range []struct {
		outcome      string
		cpu          time.Duration
		memory       int64
		time, memMet bool
	}{
		{equal, TimeGoal, MemoryGoal, true, true},
		{different, TimeGoal + 1, MemoryGoal, false, true},
		{inPart + "x", TimeGoal, MemoryGoal + 1, true, false},
		{"not proved: chain x: y", 1, 1, false, false},
	} {
		m := Measured{Outcome: test.outcome, CPU: test.cpu, Memory: test.memory}
		if m.judge(TimeGoal); m.TimeMet != test.time || m.MemoryMet != test.memMet {
			t.Errorf("%+v: %+v", test, m)
		}
	}
}
