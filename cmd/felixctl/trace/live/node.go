package live

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"strings"

	"github.com/felixlike/felixlike/cmd/felixctl/dump"
	"github.com/felixlike/felixlike/felixlike/config"
	"github.com/felixlike/felixlike/internal/namespace"
)

// Node is a watched node on the packet's path.
type Node struct {
	Name string
	// NetNS is the path of its network namespace; "" is that of the process.
	NetNS string
	// Backend is the one in force, OVSDir the folder of Open vSwitch's sockets.
	Backend, OVSDir string
	// Held is the node's state: it names the rules that a trace gives by number.
	Held *dump.State
}

// do runs a function in the node's network namespace.
func (n Node) do(f func() error) error {
	if n.NetNS == "" {
		return f()
	}
	ns, err := namespace.At(n.NetNS)
	if err != nil {
		return err
	}
	defer ns.Close()
	return ns.Do(f)
}

// start starts a program there.
func (n Node) start(cmd *exec.Cmd) error {
	if err := n.do(cmd.Start); err != nil {
		return fmt.Errorf("%s: %s: %w", n.Name, cmd.Args[0], err)
	}
	return nil
}

// Run runs a program there and returns its output.
func (n Node) Run(ctx context.Context, argv ...string) (string, error) {
	var out, errs bytes.Buffer
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := n.start(cmd)
	if err == nil {
		err = cmd.Wait()
	}
	if err != nil {
		return out.String(), fmt.Errorf("%s: %s: %w %s", n.Name, strings.Join(argv, " "), err, strings.TrimSpace(errs.String()))
	}
	return out.String(), nil
}

// legacy reports whether packets are judged there by the legacy tables, which trace in
// another way than nf_tables.
func (n Node) legacy() bool { return n.Backend == config.IPTablesLegacy }
