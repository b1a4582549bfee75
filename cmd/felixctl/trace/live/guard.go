package live

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"
)

// guard sets something up on a node, and undoes it when it is ended or this process
// ends. A shell waits for the end of its standard input: the kernel closes it with the
// process, even after a kill.
type guard struct {
	cmd   *exec.Cmd
	input io.Closer
}

// startGuard runs the command that sets up, and returns when it is done. undo is run
// in any case.
func startGuard(ctx context.Context, n Node, setup, undo string) (*guard, error) {
	// A separate process group keeps the interrupt of a terminal from the shell.
	script := fmt.Sprintf("trap '' INT TERM HUP; trap '%s' EXIT; set -e; %s; echo ready; cat >/dev/null", undo, setup)
	cmd := exec.Command("sh", "-c", script)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	var errs strings.Builder
	cmd.Stderr = &errs
	input, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	output, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := n.start(cmd); err != nil {
		return nil, err
	}
	g := &guard{cmd, input}
	stop := context.AfterFunc(ctx, func() { _ = input.Close() })
	defer stop()
	answer := make([]byte, 16)
	if k, _ := output.Read(answer); string(answer[:k]) != "ready\n" {
		_ = g.end()
		return nil, fmt.Errorf("%s: %s: %s", n.Name, setup, strings.TrimSpace(errs.String()))
	}
	return g, nil
}

// end undoes the setup.
func (g *guard) end() error {
	_ = g.input.Close()
	done := make(chan error, 1)
	go func() { done <- g.cmd.Wait() }()
	select {
	case err := <-done:
		return err
	case <-time.After(10 * time.Second):
		return fmt.Errorf("process %d does not end: it has to remove the rule that traces", g.cmd.Process.Pid)
	}
}

// leftover reports whether a name ends in the number of a process that has ended.
func leftover(name, prefix string) bool {
	number, ours := strings.CutPrefix(name, prefix)
	if !ours || number == "" {
		return false
	}
	_, err := os.Stat("/proc/" + number)
	return os.IsNotExist(err)
}
