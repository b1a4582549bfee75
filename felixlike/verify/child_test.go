package verify

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/felixlike/felixlike/felixlike/control"
	"github.com/felixlike/felixlike/felixlike/version"
	"github.com/felixlike/felixlike/test/eventually"
)

// program writes a felixctl that is this shell script.
func program(t *testing.T, script string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "felixctl")
	// A process that another test forks meanwhile would hold the file open for writing, and the kernel would not run it (ETXTBSY).
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"+script+"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

// certificateOf is the output of felixctl prove live -o json.
func certificateOf(equal bool, notProved, differences string) string {
	return fmt.Sprintf(`{"equal": %v, "version": %q, "notProved": [%s], "assumed": ["routes"], "classes": [{"family": "IPv4", "addresses": 15, "ports": 289, "interfaces": 3}], "differences": [%s]}`, equal, version.String(), notProved, differences)
}

// compared are the classes of a certificate.
var compared = []control.Classes{{Family: "IPv4", Addresses: 15, Ports: 289, Interfaces: 3}}

// oneDifference has two regions, and this packet.
const oneDifference = `{"a": "dropped", "b": "accepted", "way": "through the host", "connection": "new",
	"packet": {"from": "shop/web", "to": "shop/db", "source": "10.10.0.10", "destination": "10.10.0.11", "protocol": "tcp", "port": 80}, "regions": [
	{"source": "shop/web", "destination": "shop/db", "ports": "tcp 80"}, {"source": "shop/web", "destination": "ops/*", "ports": "udp 53"}]}`

// TestAnswers: each exit code of felixctl prove live, with the output that belongs to it, is one kind of answer. Any other output is no answer, and never
// a proof or a difference.
func TestAnswers(t *testing.T) {
	for name, test := range map[string]struct {
		script string
		want   Answer
		err    string
	}{
		"equal":   {"echo '" + certificateOf(true, "", "") + "'", Answer{Compared: true, Classes: compared}, ""},
		"differs": {"echo '" + certificateOf(false, `"learned flows"`, oneDifference) + "'; exit 1", Answer{Difference: "10.10.0.10 (shop/web) -> 10.10.0.11 (shop/db) tcp 80: programmed: dropped; policies: accepted (through the host, connection: new); one of 2 regions that differ"}, ""},
		"in part": {"echo '" + certificateOf(false, `"learned flows."`, "") + "'; echo 'felixctl: proved in part' >&2; exit 3", Answer{NotProved: "learned flows.", Compared: true, Classes: compared}, ""},
		"not proved": {
			"echo 'felixctl: not proved: chain x rule 1: unknown form\nmore' >&2; exit 2", Answer{NotProved: "chain x rule 1: unknown form more"}, "",
		},
		"not proved after two seconds": {
			"printf 'proving (2s)\nproving (4s)\nfelixctl: not proved: chain x rule 1: unknown form\nmore\n' >&2; exit 2", Answer{NotProved: "chain x rule 1: unknown form more"}, "",
		},
		"failed":                   {"echo 'felixctl: nft: not found' >&2; exit 2", Answer{}, "nft: not found"},
		"failed after two seconds": {"printf 'proving (2s)\nfelixctl: nft: not found\n' >&2; exit 2", Answer{}, "prove live: nft: not found"},
		"garbage":                  {"echo 'hello'", Answer{}, "cannot be read"},
		"nothing":                  {"exit 0", Answer{}, "cannot be read"},
		"cut":                      {"echo '" + certificateOf(true, "", "")[:40] + "'", Answer{}, "cannot be read"},
		"equal with 1":             {"echo '" + certificateOf(true, "", "") + "'; exit 1", Answer{}, "does not fit its exit code 1"},
		"different with 0":         {"echo '" + certificateOf(false, "", oneDifference) + "'", Answer{}, "does not fit its exit code 0"},
		"no packet":                {"echo '" + certificateOf(false, "", `{"a": "x", "b": "y", "regions": [{}]}`) + "'; exit 1", Answer{}, "does not fit its exit code 1"},
		"unknown code":             {"echo '" + certificateOf(true, "", "") + "'; exit 7", Answer{}, "does not fit its exit code 7"},
		"other version":            {`echo '{"equal": true, "version": "v0.0.1 (go1.1)", "notProved": [], "differences": []}'`, Answer{}, `felixctl has version "v0.0.1 (go1.1)"`},
		"killed":                   {"kill -9 $$", Answer{}, "signal: killed"},
		"output without end":       {"yes felixlike", Answer{}, "output is longer than"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := Child{Path: program(t, test.script), Socket: "/nonexistent"}.Prove(t.Context())
			if test.err != "" {
				if got.Err == nil || !strings.Contains(got.Err.Error(), test.err) {
					t.Errorf("error %v, want %s", got.Err, test.err)
				}
				got.Err = nil
			}
			if got.CPU, got.Memory = 0, 0; !reflect.DeepEqual(got, test.want) {
				t.Errorf("got %+v, want %+v", got, test.want)
			}
		})
	}
	if got := (Child{Path: "/nonexistent/felixctl"}).Prove(t.Context()); !errors.Is(got.Err, os.ErrNotExist) {
		t.Errorf("a missing program: %+v", got)
	}
}

// TestPacket: ports and types of ICMP are written as felixctl prove writes them.
func TestPacket(t *testing.T) {
	a, b := netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("fd00::1")
	for want, p := range map[string]packet{
		"10.0.0.1 -> fd00::1 (x/a) icmp type 8 code 0": {Source: a, Destination: b, To: "x/a", Protocol: "icmp", Port: 8 << 8},
		"fd00::1 -> 10.0.0.1 112":                      {Source: b, Destination: a, Protocol: "112"},
	} {
		if got := p.String(); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}

// TestCheck: a felixctl that is missing or not executable is named at the start, with what to do.
func TestCheck(t *testing.T) {
	if err := (Child{Path: program(t, "exit 0")}).Check(); err != nil {
		t.Error(err)
	}
	path := program(t, "exit 0")
	if err := os.Chmod(path, 0o644); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{path, "/nonexistent/felixctl"} {
		err := Child{Path: path}.Check()
		if err == nil || !strings.Contains(err.Error(), "verify needs felixctl") || !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), "set verify to off") {
			t.Errorf("%s: %v", path, err)
		}
	}
}

// TestChildIsBounded: the process has the least priority, a bound of memory, and ends at its deadline, with the tools that it has started. The time of its
// tools counts. When memory is short, the kernel treats it like the agent: to end it may end the whole container.
func TestChildIsBounded(t *testing.T) {
	dir, before := t.TempDir(), priority(t)
	c := Child{Path: program(t, `
cd `+dir+`
nice > nice; cat /proc/self/oom_score_adj > oom; echo "$@" > args; echo $GOMAXPROCS $GOMEMLIMIT > limits
sh -c 'i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done'
ulimit -d > data
sleep 600 & echo $! > tool.new; mv tool.new tool; wait`), Socket: "/run/x.sock"}
	var a Answer
	// On a busy machine, a process with the least priority gets so far with a later deadline only.
	for c.Deadline = time.Second; c.Deadline < eventually.Patience; c.Deadline *= 2 {
		a = c.Prove(t.Context())
		if exists(filepath.Join(dir, "tool")) {
			break
		}
	}
	if a.Err == nil || !strings.Contains(a.Err.Error(), "has no result after "+c.Deadline.String()) || a.CPU < 10*time.Millisecond || a.Memory == 0 {
		t.Errorf("answer %+v", a)
	}
	oom, err := os.ReadFile("/proc/self/oom_score_adj")
	if err != nil {
		t.Fatal(err)
	}
	for file, want := range map[string]string{
		"nice": "19", "oom": strings.TrimSpace(string(oom)), "data": "2097152", "limits": "1 1GiB",
		"args": "prove live --socket /run/x.sock --timeout " + c.Deadline.String() + " -o json",
	} {
		if got, err := os.ReadFile(filepath.Join(dir, file)); err != nil || strings.TrimSpace(string(got)) != want {
			t.Errorf("%s: %q, want %q; %v", file, got, want, err)
		}
	}
	ended(t, filepath.Join(dir, "tool"))
	for range 10 {
		if now := priority(t); now != before {
			t.Errorf("a thread of the agent has priority %d, and had %d before", now, before)
		}
	}
}

// priority returns the nice value of a thread.
func priority(t *testing.T) int {
	t.Helper()
	priority, err := syscall.Getpriority(syscall.PRIO_PROCESS, 0)
	if err != nil {
		t.Fatal(err)
	}
	return 20 - priority // the system call counts from 20 down
}

// TestChildEndsWithContext: the process ends when the proof is abandoned.
func TestChildEndsWithContext(t *testing.T) {
	dir := t.TempDir()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan Answer)
	c := Child{Path: program(t, "cd "+dir+"; sleep 600 & echo $! > tool.new; mv tool.new tool; wait")}
	go func() { done <- c.Prove(ctx) }()
	eventually.True(t, "the process runs", func() bool { return exists(filepath.Join(dir, "tool")) })
	cancel()
	if a := <-done; a.Err == nil {
		t.Errorf("answer %+v", a)
	}
	ended(t, filepath.Join(dir, "tool"))
}

// TestNoProcessIsLeft: an agent that is process 1 of its container waits for the tools of a felixctl that has died before them. No zombie stays, and what
// they used counts.
func TestNoProcessIsLeft(t *testing.T) {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0) })
	const used = "mkfifo ready; sh -c 'i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done; echo > ready; exec sleep 600' & read x < ready; echo $! > tool.new; mv tool.new tool; "
	for name, end := range map[string]string{
		"ended": "exit 2", "killed": "kill -9 $$", "abandoned": "wait", "does not end": "trap '' TERM; while :; do sleep 1; done",
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			tool := filepath.Join(dir, "tool")
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			if name == "abandoned" || name == "does not end" {
				go func() {
					for deadline := time.Now().Add(eventually.Patience); time.Now().Before(deadline) && !exists(tool); {
						time.Sleep(time.Millisecond)
					}
					cancel()
				}()
			}
			a := Child{Path: program(t, "cd "+dir+"; "+used+end)}.Prove(ctx)
			if a.Err == nil || a.CPU < 50*time.Millisecond || a.Memory == 0 {
				t.Errorf("answer %+v", a)
			}
			text, err := os.ReadFile(tool)
			if err != nil {
				t.Fatal(err)
			}
			if stat, err := os.ReadFile("/proc/" + strings.TrimSpace(string(text)) + "/stat"); err == nil {
				t.Errorf("the tool is left: %s", stat)
			}
		})
	}
}

// TestKilled: the time of a killed process's tools is not known, so it counts with its whole duration.
func TestKilled(t *testing.T) {
	if a := (Child{Path: program(t, "sleep 0.2; kill -9 $$")}).Prove(t.Context()); a.Err == nil || a.CPU < 200*time.Millisecond {
		t.Errorf("answer %+v", a)
	}
}

// TestToolsEndFirst: an abandoned felixctl gets the time to wait for its tools.
func TestToolsEndFirst(t *testing.T) {
	dir := t.TempDir()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() {
		for deadline := time.Now().Add(eventually.Patience); time.Now().Before(deadline) && !exists(filepath.Join(dir, "runs")); {
			time.Sleep(time.Millisecond)
		}
		cancel()
	}()
	Child{Path: program(t, "cd "+dir+"; sleep 600 & tool=$!; trap 'kill $tool; wait $tool; : > waited; exit 2' TERM; : > runs; wait $tool")}.Prove(ctx)
	if !exists(filepath.Join(dir, "waited")) {
		t.Error("the process was killed before it could wait for its tool")
	}
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// ended waits until the process whose number a file has is gone.
func ended(t *testing.T, file string) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	status := "/proc/" + strings.TrimSpace(string(text)) + "/stat"
	eventually.True(t, "the tool has ended", func() bool {
		stat, err := os.ReadFile(status)
		return err != nil || strings.Contains(string(stat), ") Z ")
	})
}
