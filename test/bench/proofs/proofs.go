// Package proofs is `felixctl bench prove`: it measures the proofs of felixctl prove over a workload, from the dumps of two states to the certificate. Each
// proof is a process of its own, of which it reads processor time and memory. It programs nothing. It is tested with a small workload, and with made-up
// measurements.
package proofs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/felixlike/felixlike/cmd/felixctl/dump"
	"github.com/felixlike/felixlike/cmd/felixctl/dump/wanted"
	"github.com/felixlike/felixlike/cmd/felixctl/prove"
	"github.com/felixlike/felixlike/felixlike/config"
	"github.com/felixlike/felixlike/felixlike/control"
	"github.com/felixlike/felixlike/felixlike/datastore"
	"github.com/felixlike/felixlike/test/bench/workload"
)

// The goals: processor time of a proof of any two backends, and of one changed policy, and memory in bytes.
const (
	TimeGoal    = 2 * time.Second
	ChangeGoal  = 20 * time.Millisecond
	MemoryGoal  = 1 << 30
	memoryLimit = "GOMEMLIMIT=1GiB" // as in a proof of the agent
)

// Measured is one proof.
type Measured struct {
	A string `json:"a"`
	B string `json:"b"`
	// Outcome is equal, different, "in part: ...", "not proved: ...", or "not completed".
	Outcome string `json:"outcome"`
	// CPU is the processor time of the whole process, Elapsed its duration, Memory its largest use in bytes.
	CPU     time.Duration `json:"cpuNanoseconds"`
	Elapsed time.Duration `json:"elapsedNanoseconds"`
	Memory  int64         `json:"memoryBytes"`
	// Goal is the bound of CPU, TimeMet and MemoryMet whether the goals are met. A proof that is not completed meets none.
	Goal      time.Duration `json:"goalNanoseconds"`
	TimeMet   bool          `json:"timeMet"`
	MemoryMet bool          `json:"memoryMet"`
}

// The outcomes of a completed proof.
const (
	equal     = "equal"
	different = "different"
	// A proof that is not completed has reached its limit.
	notCompleted = "not completed"
	inPart       = "in part: "
)

// judge compares with the goals.
func (m *Measured) judge(goal time.Duration) {
	done := m.Outcome == equal || m.Outcome == different || strings.HasPrefix(m.Outcome, inPart)
	m.Goal, m.TimeMet, m.MemoryMet = goal, done && m.CPU <= goal, done && m.Memory <= MemoryGoal
}

// changedPolicy is the name of the state with one changed policy.
const changedPolicy = "nftables, one policy changed"

// states are those that are compared.
func states() []string {
	return []string{config.NFTables, config.NFTables + " maps", config.IPTablesNFT, config.OpenFlow}
}

// Child runs a proof (Prove) in a process of its own, with these arguments and environment, and returns its output and its processor time.
type Child func(ctx context.Context, env []string, args ...string) ([]byte, time.Duration, error)

// Run measures each pair of states, and the change of one policy: with the state before, and with the same. limit bounds the processor time of one proof, in whole seconds: a duration would depend on
// what else runs.
func Run(ctx context.Context, p workload.Profile, limit time.Duration, child Child, each func(Measured)) error {
	dir, err := os.MkdirTemp("", "felixlike-bench-prove-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	w := workload.New(p)
	if err := writeStates(dir, w.Events(), states()...); err != nil {
		return err
	}
	changed, _ := w.ChangedPolicy(0)
	if err := writeStates(dir, append(w.Events(), datastore.NetworkPolicySet{Policy: changed}), changedPolicy); err != nil {
		return err
	}
	measure := func(a, b string, goal time.Duration) error {
		began := time.Now()
		out, used, err := child(ctx, append(os.Environ(), memoryLimit), filepath.Join(dir, a), filepath.Join(dir, b), limit.String())
		m := Measured{Outcome: notCompleted, CPU: used}
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case reached(limit, used, err):
		case err != nil:
			return fmt.Errorf("%s and %s: %w", a, b, err)
		default:
			if err := json.Unmarshal(out, &m); err != nil {
				return fmt.Errorf("%s and %s: read the measurement: %w", a, b, err)
			}
		}
		m.A, m.B, m.Elapsed = a, b, time.Since(began)
		m.judge(goal)
		each(m)
		return nil
	}
	all := states()
	for i, a := range all {
		for _, b := range all[i+1:] {
			if err := measure(a, b, TimeGoal); err != nil {
				return err
			}
		}
	}
	// The agent compares the programmed change with the policies, which are the same if all is well.
	for _, a := range []string{config.NFTables, changedPolicy} {
		if err := measure(a, changedPolicy, ChangeGoal); err != nil {
			return err
		}
	}
	return nil
}

// reached reports whether the kernel has ended a process at its limit. It counts ticks for that, and so ends it up to a tenth before the processor time that
// it reports is the limit.
func reached(limit, used time.Duration, err error) bool {
	var exit *exec.ExitError
	if !errors.As(err, &exit) {
		return false
	}
	status, is := exit.Sys().(syscall.WaitStatus)
	return is && (status.Signal() == unix.SIGKILL || status.Signal() == unix.SIGXCPU) && used >= limit*3/4
}

// writeStates writes the dumps and the models of states.
func writeStates(dir string, events []datastore.Event, names ...string) error {
	for _, name := range names {
		like := control.Model{
			Settings:      control.Settings{Masquerade: true, NFTablesLayout: config.LayoutRules},
			HostAddresses: []netip.Addr{netip.MustParseAddr("192.168.50.11"), netip.MustParseAddr("fd00:50::11")},
		}
		backend := name
		switch name {
		case config.NFTables + " maps":
			backend, like.Settings.NFTablesLayout = config.NFTables, config.LayoutMaps
		case changedPolicy:
			backend = config.NFTables
		}
		m, problems, err := wanted.FromEvents(events, workload.Node, &like)
		if err == nil && len(problems) > 0 {
			err = problems[0]
		}
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		m.Backend = backend
		s, err := wanted.Of(m, backend)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		path := filepath.Join(dir, name)
		if err := write(path+dumpSuffix, func(to io.Writer) error { return dump.Write(to, s, dump.TextOptions{}) }); err != nil {
			return err
		}
		if err := write(path+modelSuffix, func(to io.Writer) error { return json.NewEncoder(to).Encode(m) }); err != nil {
			return err
		}
	}
	return nil
}

// The files of a state.
const (
	dumpSuffix  = ".dump"
	modelSuffix = ".json"
)

func write(path string, content func(io.Writer) error) error {
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	return errors.Join(content(file), file.Close())
}

// Limit has the kernel end this process once it has used so much processor time.
func Limit(text string) error {
	limit, err := time.ParseDuration(text)
	if err != nil {
		return err
	}
	seconds := uint64(limit / time.Second)
	return unix.Setrlimit(unix.RLIMIT_CPU, &unix.Rlimit{Cur: seconds, Max: seconds})
}

// Prove proves two states that Run has written, and writes the outcome with the processor time and the memory of this process, as JSON.
func Prove(ctx context.Context, out io.Writer, paths ...string) error {
	sides := make([]prove.Side, len(paths))
	for i, path := range paths {
		file, err := os.Open(path + dumpSuffix)
		if err != nil {
			return err
		}
		sides[i].State, err = dump.Parse(file)
		_ = file.Close() // it was only read
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		data, err := os.ReadFile(path + modelSuffix)
		if err != nil {
			return err
		}
		if err := json.Unmarshal(data, &sides[i].Model); err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
	}
	r, err := prove.Compare(ctx, sides[0], sides[1], prove.Options{OnlyOurs: true})
	m, refused := Measured{Outcome: equal}, (*prove.NotProved)(nil)
	switch {
	case errors.As(err, &refused):
		m.Outcome = refused.Error()
	case err != nil:
		return err
	case len(r.Differences) > 0:
		m.Outcome = different
	case len(r.NotProved) > 0:
		m.Outcome = inPart + strings.Join(r.NotProved, " ")
	}
	var used unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &used); err != nil {
		return fmt.Errorf("read the processor time: %w", err)
	}
	m.CPU = time.Duration(used.Utime.Nano() + used.Stime.Nano())
	if m.Memory, err = peak(); err != nil {
		return err
	}
	return json.NewEncoder(out).Encode(m)
}

// peak returns the largest memory of this process in bytes. The kernel's ru_maxrss would have that of the process before exec too.
func peak() (int64, error) {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(status)) {
		var kilobytes int64
		if _, err := fmt.Sscanf(line, "VmHWM: %d kB", &kilobytes); err == nil {
			return kilobytes << 10, nil
		}
	}
	return 0, errors.New("/proc/self/status has no VmHWM")
}
