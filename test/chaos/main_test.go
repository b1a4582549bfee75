// Package chaos tests what faults do to a cluster under traffic: one table of faults, each
// run with the backends that it concerns, on a lab of two nodes whose Open vSwitch is
// supervised as on a cluster. It holds only tests.
//
// Allowed streams, pings and new connections, denied ones of TCP and UDP, and changes of
// policies go on all the time. Each row of the table (faults_test.go) declares how long
// denied packets may pass and allowed ones may be missing; invariants_test.go has the checks.
//
//	make test                                            the rows that no other test covers
//	make test-chaos                                      all rows; writes docs/results/reliability.md
//	make test-chaos FAULT='flush' BACKEND=nftables       the rows whose name matches
//	make test-chaos BUDGET=10m                           no row begins after ten minutes
//	make test-soak BACKEND=nftables TIME=1h              no fault: memory, descriptors and goroutines must not grow
//
// The moments and the changes of policies are drawn from internal/seeded. Bounds leave out the
// time without a processor (test/stopwatch); packets that policy denies are never left out.
package chaos

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/felixlike/felixlike/test/lab"
)

// What is run. Without the flag all, the rows for continuous integration are.
var (
	all     = flag.Bool("all", false, "run all rows, not only those of continuous integration")
	fault   = flag.String("fault", "", "run the faults whose name matches this regular expression")
	backend = flag.String("backend", "", "run this backend only")
	budget  = flag.Duration("budget", 8*time.Minute, "begin no row after this time")
	soak    = flag.Duration("soak", 0, "run TestSoak for this time")
	report  = flag.String("report", "", "write the results into this document, and beside it as JSON")
)

// buildDir is the directory of the binaries that TestMain builds.
var buildDir string

func TestMain(m *testing.M) {
	os.Exit(run(m))
}

func run(m *testing.M) int {
	flag.Parse()
	if testing.Short() || lab.Available() != nil {
		return m.Run() // TestChaos says why it skips
	}
	dir, err := os.MkdirTemp("", "flx-chaos")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 2
	}
	defer os.RemoveAll(dir)
	buildDir = dir
	// The lock of iptables is of this test's agents alone: one row holds it.
	if err := os.Setenv("XTABLES_LOCKFILE", filepath.Join(dir, "xtables.lock")); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 2
	}
	build := exec.Command("go", "build", "-o", dir, "github.com/felixlike/felixlike/cmd/felixlike-agent")
	build.Stderr = os.Stderr
	if err := build.Run(); err != nil {
		fmt.Fprintln(os.Stderr, "build the agent:", err)
		return 2
	}
	return m.Run()
}
