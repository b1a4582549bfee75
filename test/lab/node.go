package lab

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"syscall"

	"github.com/vishvananda/netlink"

	"github.com/felixlike/felixlike/cmd/felixctl/labs"
	"github.com/felixlike/felixlike/felixlike/control"
	"github.com/felixlike/felixlike/internal/namespace"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/ovsfwd/ovsdaemon"
	"github.com/felixlike/felixlike/ovsfwd/ovsdb"
	"github.com/felixlike/felixlike/test/lab/probe"
)

// Bridge is the integration bridge that the agents make.
const Bridge = "br-int"

// Node is a node of a running lab.
type Node struct {
	spec    *nodeSpec
	dir     string
	record  *record
	ns      *namespace.Namespace
	station *probe.Station
	ovs     *ovsdaemon.Daemons
	// supervised is nil unless SuperviseOVS was called.
	supervised *SupervisedOVS
	agent      *agent
	command    agentCommand
}

// newNode builds a node and starts its Open vSwitch; the agent comes later.
// On an error, the record has the parts to remove.
func newNode(ctx context.Context, r *record, f *fabric, spec *nodeSpec, dir string, command agentCommand) (*Node, error) {
	ns, err := newNamespace(r, nodeNamespace(r.Name, spec.Name))
	if err != nil {
		return nil, fmt.Errorf("node %s: %w", spec.Name, err)
	}
	n := &Node{spec: spec, dir: dir, record: r, ns: ns, station: probe.NewStation(ns), command: command}
	if err := f.connect(spec, ns); err != nil {
		return nil, errors.Join(err, n.stop())
	}
	if err := ns.Do(n.configureUplink); err != nil {
		return nil, errors.Join(fmt.Errorf("node %s: %w", spec.Name, err), n.stop())
	}
	n.ovs, err = ovsdaemon.Start(ctx, ovsdaemon.Options{
		Dir: n.OVSDir(), NetNS: ns.Path(), Kernel: command.datapath != ovsdb.DatapathNetdev,
	})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("node %s: %w", spec.Name, err), n.stop())
	}
	db, vswitchd := n.ovs.PIDs()
	err = errors.Join(r.addProcess(db, "ovsdb-server of "+spec.Name), r.addProcess(vswitchd, "ovs-vswitchd of "+spec.Name))
	if err != nil {
		return nil, errors.Join(err, n.stop())
	}
	return n, nil
}

// configureUplink is run on the node's thread.
func (n *Node) configureUplink() error {
	link, err := netlink.LinkByName(uplink)
	if err != nil {
		return fmt.Errorf("uplink: %w", err)
	}
	if err := up(link, n.command.datapath); err != nil {
		return err
	}
	for _, a := range n.spec.Addresses {
		if err := addAddress(link, netip.PrefixFrom(a, subnet(a).Bits())); err != nil {
			return err
		}
	}
	for _, gateway := range n.spec.Gateways {
		err := netlink.RouteReplace(&netlink.Route{LinkIndex: link.Attrs().Index, Gw: gateway.Addr().AsSlice()})
		if err != nil {
			return fmt.Errorf("default route via %s: %w", gateway.Addr(), err)
		}
	}
	return nil
}

// Name returns the node's name.
func (n *Node) Name() string { return n.spec.Name }

// Address returns the node's address of a family, or the zero Addr.
func (n *Node) Address(f model.Family) netip.Addr { return n.spec.Address(f) }

// Outer returns the node's end of the tunnels.
func (n *Node) Outer() netip.Addr { return n.spec.Outer() }

// Namespace returns the node's network namespace.
func (n *Node) Namespace() *namespace.Namespace { return n.ns }

// OVSDir returns the run directory of the node's Open vSwitch.
func (n *Node) OVSDir() string { return filepath.Join(n.dir, "ovs") }

// OVS returns the node's Open vSwitch.
func (n *Node) OVS() *ovsdaemon.Daemons { return n.ovs }

// ControlSocket returns the path of the agent's control socket.
func (n *Node) ControlSocket() string { return filepath.Join(n.runDir(), control.SocketName) }

// LogFile returns the path of the agent's log.
func (n *Node) LogFile() string { return labs.AgentLog(n.dir) }

func (n *Node) runDir() string { return labs.RunDir(n.dir) }

// Settings returns the settings of the agents that are started from now on, to be changed.
func (n *Node) Settings() *Settings { return &n.command.Settings }

// StateDir returns the directory that the agent keeps over restarts.
func (n *Node) StateDir() string { return labs.StateDir(n.dir) }

// StartAgent starts the node's agent; it does not wait until it serves.
func (n *Node) StartAgent() error {
	if err := os.MkdirAll(n.runDir(), 0o700); err != nil {
		return fmt.Errorf("node %s: %w", n.Name(), err)
	}
	a, err := startAgent(n.ns, n.command.args(n), n.LogFile())
	if err != nil {
		return fmt.Errorf("node %s: %w", n.Name(), err)
	}
	n.agent = a
	return n.record.addProcess(a.pid(), "agent of "+n.Name())
}

// StartSecondAgent starts another agent on the node, with its run directory and log in dir.
func (n *Node) StartSecondAgent(dir string) (*SecondAgent, error) {
	args := n.command.args(n)
	args[slices.Index(args, "--run-dir")+1] = dir
	a, err := startAgent(n.ns, args, filepath.Join(dir, "agent.log"))
	if err != nil {
		return nil, fmt.Errorf("node %s: %w", n.Name(), err)
	}
	return &SecondAgent{a}, n.record.addProcess(a.pid(), "second agent of "+n.Name())
}

// SecondAgent is an agent beside a node's own.
type SecondAgent struct{ agent *agent }

// PID returns its process id, 0 if it does not run.
func (s *SecondAgent) PID() int { return s.agent.pid() }

// Kill ends it.
func (s *SecondAgent) Kill() error { return s.agent.kill() }

// KillAgent ends the agent as a crash does (SIGKILL) and waits for its end.
func (n *Node) KillAgent() error {
	err := n.agent.kill()
	n.agent = nil
	return err
}

// StopAgent asks the agent to end and waits for its end.
func (n *Node) StopAgent() error {
	err := n.agent.stop()
	n.agent = nil
	return err
}

// AgentPID returns the agent's process id, 0 if it does not run.
func (n *Node) AgentPID() int { return n.agent.pid() }

// Status asks the agent for its status.
func (n *Node) Status(ctx context.Context) (control.Status, error) {
	return control.NewClient(n.ControlSocket()).Status(ctx)
}

// Sync waits until the agent has programmed all of the manifests as they are
// now, and the given pods.
func (n *Node) Sync(ctx context.Context, pods ...model.PodID) error {
	for {
		if err := n.agent.waitSocket(ctx, n.ControlSocket()); err != nil {
			return fmt.Errorf("node %s: %w (see %s)", n.Name(), err, n.LogFile())
		}
		_, err := control.NewClient(n.ControlSocket()).Sync(ctx, pods...)
		if errors.Is(err, syscall.ECONNRESET) && n.agent.pid() != 0 {
			continue // a child that a killed agent forked had its socket until it executed its program
		}
		if err != nil {
			return fmt.Errorf("node %s: sync: %w (see %s)", n.Name(), err, n.LogFile())
		}
		return nil
	}
}

// stop ends all processes and sockets of the node and deletes its namespace.
func (n *Node) stop() error {
	errs := []error{n.StopAgent(), n.station.Close()}
	if n.ovs != nil {
		errs = append(errs, n.ovs.Stop())
	}
	if n.supervised != nil {
		errs = append(errs, n.supervised.End(syscall.SIGTERM))
	}
	return errors.Join(append(errs, dropNamespace(n.record, n.ns))...)
}
