// Package load measures an agent's driver and backend under load: many changes a second, many pods, policies and
// members. It holds only tests.
//
// Each row of the table (load_test.go) is a process of its own in an empty network namespace, under openflow with an
// Open vSwitch. It gets its objects from memory, as in test/bench. Then it takes changes for some time. The row fails if
// the agent is not ready at some time, if an apply fails or sets anything aside, or if memory, descriptors or goroutines
// grow. Times are printed, not judged.
//
//	make test                              one small row, for two seconds
//	make test-load                         all rows, with nftables
//	make test-load BACKEND=openflow ROW=members TIME=10m
//	make bench-scale                       many policies at once, with all backends (burst_test.go)
//
// The changes are the same at each run.
package load

import (
	"flag"
	"fmt"
	"os"
	"testing"
	"time"
)

// What is run. Without a row, the smallest is, for a short time.
var (
	rowName   = flag.String("row", "", "run the rows whose name matches this regular expression")
	chosen    = flag.String("backend", "nftables", "the backend; for TestBurst, several with commas between")
	lasts     = flag.Duration("for", 0, "how long changes come, in the place of the row's time")
	burstName = flag.String("burst", "", "the load of TestBurst: kube-burner; the smallest if empty")
	budget    = flag.Duration("budget", 30*time.Minute, "begin no row after this time")
)

// taskVariable makes a process the agent of a row, by the row's task in JSON.
const taskVariable = "FELIXLIKE_LOAD_TASK"

func TestMain(m *testing.M) {
	if text := os.Getenv(taskVariable); text != "" {
		if err := child(text); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}
