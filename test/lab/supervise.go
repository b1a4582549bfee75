package lab

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/felixlike/felixlike/ovsfwd/supervisor"
)

// SupervisedOVS is a node's Open vSwitch that "felixlike-agent ovs" runs, as on a
// cluster, in the place of the lab's daemons.
type SupervisedOVS struct {
	node  *Node
	cmd   *exec.Cmd
	ended chan struct{}
}

// supervisorGrace bounds the end of a supervisor: it ends both daemons.
const supervisorGrace = 30 * time.Second

// SuperviseOVS ends the lab's daemons of the node and starts the supervisor in their place.
// It does not wait until Open vSwitch serves.
func (n *Node) SuperviseOVS() (*SupervisedOVS, error) {
	if err := n.ovs.Stop(); err != nil {
		return nil, fmt.Errorf("node %s: %w", n.Name(), err)
	}
	n.supervised = &SupervisedOVS{node: n}
	return n.supervised, n.supervised.Start()
}

// Start starts the supervisor, after End or Signal.
func (s *SupervisedOVS) Start() error {
	log, err := os.OpenFile(filepath.Join(s.node.dir, "ovs.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("log of the supervisor: %w", err)
	}
	defer log.Close()
	s.cmd = exec.Command(s.node.command.binary, "ovs", "--node-name", s.node.Name(),
		"--ovs-run-dir", s.node.OVSDir(), "--database-dir", s.node.OVSDir(), "--bridge", Bridge, "--datapath", s.node.command.datapath)
	s.cmd.Stderr = log
	if err := s.node.ns.Do(s.cmd.Start); err != nil {
		return fmt.Errorf("supervisor of %s: %w", s.node.Name(), err)
	}
	ended := make(chan struct{})
	s.ended = ended
	go func(cmd *exec.Cmd) {
		defer close(ended)
		_ = cmd.Wait() // how it ended is in its log
	}(s.cmd)
	return s.node.record.addProcess(s.cmd.Process.Pid, "supervisor of Open vSwitch of "+s.node.Name())
}

// Signal sends the supervisor a signal.
func (s *SupervisedOVS) Signal(signal syscall.Signal) error { return s.cmd.Process.Signal(signal) }

// Wait waits until the supervisor has ended.
func (s *SupervisedOVS) Wait() error {
	select {
	case <-s.ended:
		return nil
	case <-time.After(supervisorGrace):
		return fmt.Errorf("the supervisor of %s does not end", s.node.Name())
	}
}

// End sends the supervisor a signal and waits until it has ended.
func (s *SupervisedOVS) End(signal syscall.Signal) error {
	if err := s.Signal(signal); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	return s.Wait()
}

// Serves reports whether both daemons answer.
func (s *SupervisedOVS) Serves(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	return supervisor.Check(ctx, s.node.OVSDir()) == nil
}

// PID returns the process id of a daemon, ovs-vswitchd or ovsdb-server.
func (s *SupervisedOVS) PID(daemon string) (int, error) {
	text, err := os.ReadFile(filepath.Join(s.node.OVSDir(), daemon+".pid"))
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(strings.TrimSpace(string(text)))
}
