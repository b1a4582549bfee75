// Command agnhost stands in for upstream's test program agnhost, and for bash, in the
// pods of network-policy-api's conformance suite. It runs upstream's program, which is
// beside it in the image. Only where the kernel has no SCTP sockets, it does the
// program's SCTP itself: an association gets as far as INIT and INIT ACK, over raw sockets.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// upstream is where the image has upstream's program.
const upstream = "/upstream/agnhost"

// portPrefix begins the variables that name the ports of the program's porter.
const portPrefix = "SERVE_SCTP_PORT_"

func main() {
	if err := run(os.Args); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// run runs as bash, does upstream's SCTP, or becomes upstream's program.
func run(words []string) error {
	if filepath.Base(words[0]) == "bash" {
		return shell(words[1:])
	}
	args := words[1:]
	switch {
	case len(args) == 0:
		return execute(upstream, "pause")
	case args[0] == "connect" && !kernelHasSCTP():
		if to, timeout, ok := sctpTarget(args[1:]); ok {
			ctx, cancel := context.WithTimeout(context.Background(), timeout)
			defer cancel()
			return connect(ctx, to)
		}
	case args[0] == "porter" && !kernelHasSCTP():
		ports, err := portsOf(os.Environ())
		if err != nil {
			return err
		}
		conns, err := listenAll(context.Background())
		if err != nil {
			return err
		}
		return serve(context.Background(), conns, ports)
	}
	return execute(upstream, args...)
}

// shell executes a simple command: bash -c "program word word".
func shell(args []string) error {
	if len(args) != 2 || args[0] != "-c" || strings.ContainsAny(args[1], "\"'$&|;<>()*?`\\\n") {
		return fmt.Errorf("bash: only -c with a simple command: %q", args)
	}
	words := strings.Fields(args[1])
	if len(words) == 0 {
		return errors.New("bash: no command")
	}
	return execute(words[0], words[1:]...)
}

// execute replaces this process by a program.
func execute(program string, args ...string) error {
	err := unix.Exec(program, append([]string{program}, args...), os.Environ())
	return fmt.Errorf("%s: %w", program, err)
}

// sctpTarget returns the target and the timeout of a connect by SCTP.
func sctpTarget(args []string) (to netip.AddrPort, timeout time.Duration, ok bool) {
	f := flag.NewFlagSet("connect", flag.ContinueOnError)
	protocol := f.String("protocol", "", "")
	f.DurationVar(&timeout, "timeout", time.Minute, "")
	if err := f.Parse(args); err != nil || *protocol != "sctp" || f.NArg() != 1 {
		return netip.AddrPort{}, 0, false
	}
	to, err := netip.ParseAddrPort(f.Arg(0))
	return to, timeout, err == nil
}
