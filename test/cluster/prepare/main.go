// Command prepare builds the parts of a cluster that the quick suite needs, if they are missing. That is many
// minutes of processor time, so test/scripts/gotest runs it beside tests that wait most of theirs.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"

	"golang.org/x/sys/unix"

	"github.com/felixlike/felixlike/test/cluster/kubelab"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), unix.SIGINT, unix.SIGTERM)
	defer stop()
	k, err := kubelab.Find()
	if err != nil {
		fmt.Println("prepare:", err) // the tests of clusters skip for the same reason
		return
	}
	if err := k.Build(ctx, false); err != nil {
		fmt.Fprintln(os.Stderr, "prepare:", err)
		os.Exit(1)
	}
}
