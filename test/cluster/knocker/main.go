// Command knocker runs in the pods of the test that a pod has no open
// moment: from its first instruction it sends to all addresses in its arguments, and
// prints the senders that reach it. A node's end of the test uses package knock, too.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/felixlike/felixlike/test/cluster/knock"
)

// main takes the pod's name and the prefixes to send to, by words.
func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	if len(os.Args) < 2 {
		fmt.Fprintln(os.Stderr, "usage: knocker NAME PREFIX...")
		os.Exit(2)
	}
	targets, err := knock.Targets(os.Args[2:])
	if err != nil {
		fmt.Fprintln(os.Stderr, "knocker:", err)
		os.Exit(2)
	}
	k, err := knock.Listen(ctx, func(from string) { fmt.Println("received", from) })
	if err != nil {
		fmt.Fprintln(os.Stderr, "knocker:", err)
		os.Exit(1)
	}
	defer k.Close()
	sent := k.Send(ctx, os.Args[1], targets)
	fmt.Println("sent", sent, "to", len(targets), "addresses of", strings.Join(os.Args[2:], " "))
	<-ctx.Done()
}
