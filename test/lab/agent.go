package lab

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"github.com/felixlike/felixlike/felixlike/config"
	"github.com/felixlike/felixlike/internal/namespace"
)

// AgentProgram is the name of the agent's binary.
const AgentProgram = "felixlike-agent"

// FindAgent returns the path of the agent's binary: beside the running
// program, or else in $PATH.
func FindAgent() (string, error) {
	if self, err := os.Executable(); err == nil {
		beside := filepath.Join(filepath.Dir(self), AgentProgram)
		if _, err := os.Stat(beside); err == nil {
			return beside, nil
		}
	}
	path, err := exec.LookPath(AgentProgram)
	if err != nil {
		return "", fmt.Errorf("%s is neither beside this program nor in $PATH: %w", AgentProgram, err)
	}
	return path, nil
}

// Settings are the settings of a node's agents that may change while a lab runs.
type Settings struct {
	Backend, Offload, TrafficMode, Encryption, NFTablesLayout, SNAT, ServiceProxy, Isolation, PipelineVariant string
	// Source are the flags that name another datastore than the lab's manifests.
	Source []string
}

// agentCommand is the command line of a lab's agents.
type agentCommand struct {
	Settings
	binary, datapath, tunnel, logLevel, existing, verify string
	manifests                                            manifestsDir
	serveCNI                                             bool
	other                                                map[string]string
}

// podMTU leaves room for the headers of a tunnel, or of WireGuard, over IPv6 on an uplink of 1500.
const podMTU = 1420

// Services returns the prefix of the addresses of Services; MapPrefix gives that of
// IPv6. The caller provides the proxy that translates them.
func Services() netip.Prefix { return netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 96}), 16) }

// Pods returns the prefix of the IPv4 addresses of pods of nodes without a prefix of their own.
func Pods() netip.Prefix { return netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 10}), 16) }

func serviceCIDRs() string { return Services().String() + "," + MapPrefix(Services()).String() }

func (c agentCommand) args(n *Node) []string {
	plugins := ""
	if c.serveCNI {
		plugins = n.runDir() // has no plugin: the lab attaches pods itself
	}
	source := c.Source
	if len(source) == 0 {
		source = []string{"--datastore", "manifests", "--manifests", string(c.manifests)}
	}
	args := append([]string{
		c.binary, "--node-name", n.Name(), "--backend", c.Backend,
		"--ovs-run-dir", n.OVSDir(), "--bridge", Bridge, "--datapath", c.datapath,
		"--tunnel", c.tunnel, "--run-dir", n.runDir(), "--state-dir", n.StateDir(), "--cni-plugin-dir", plugins,
		"--mtu", strconv.Itoa(podMTU), "--log-level", c.logLevel, "--existing-connections", c.existing, "--offload", c.Offload,
		"--traffic-mode", c.TrafficMode, "--encryption", c.Encryption,
		"--service-cidrs", serviceCIDRs(),
	}, source...)
	if c.NFTablesLayout != config.LayoutRules { // earlier versions do not know the setting
		args = append(args, "--nftables-layout", c.NFTablesLayout)
	}
	if c.SNAT != config.HostSNAT {
		args = append(args, "--snat", c.SNAT)
	}
	if c.ServiceProxy != config.ServiceProxyOff {
		args = append(args, "--service-proxy", c.ServiceProxy)
	}
	if c.Isolation != config.IsolationNone {
		args = append(args, "--isolation", c.Isolation)
	}
	if c.PipelineVariant != config.VariantDefault {
		args = append(args, "--pipeline-variant", c.PipelineVariant, "--cluster-cidr", Pods().String())
	}
	if c.verify != config.VerifyOff {
		// Proofs follow a resync, and tests wait for them; or they follow changes alone.
		interval := "10s"
		if c.verify == config.VerifyEveryChange {
			interval = "1h"
		}
		args = append(args, "--verify", c.verify, "--resync-interval", interval)
	}
	for key, value := range c.other { // the last flag of a name counts
		args = append(args, "--"+config.FlagName(key), value)
	}
	return args
}

// agent is a running agent. A nil agent is one that does not run.
type agent struct {
	cmd   *exec.Cmd
	ended chan struct{}
	err   error
}

// startAgent starts the agent inside the namespace, its log in a file.
func startAgent(ns *namespace.Namespace, argv []string, logFile string) (*agent, error) {
	log, err := os.OpenFile(logFile, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, fmt.Errorf("agent log: %w", err)
	}
	defer log.Close()
	a := &agent{cmd: exec.Command(argv[0], argv[1:]...), ended: make(chan struct{})}
	a.cmd.Stdout, a.cmd.Stderr = log, log
	// A new session: the terminal's interrupt is for the lab alone.
	a.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := ns.Do(a.cmd.Start); err != nil {
		return nil, fmt.Errorf("start agent: %w", err)
	}
	go func() {
		a.err = a.cmd.Wait()
		close(a.ended)
	}()
	return a, nil
}

func (a *agent) pid() int {
	if a == nil {
		return 0
	}
	select {
	case <-a.ended:
		return 0
	default:
		return a.cmd.Process.Pid
	}
}

func (a *agent) kill() error { return a.end(syscall.SIGKILL) }

func (a *agent) stop() error { return a.end(syscall.SIGTERM) }

var errKilled = errors.New("agent did not end in time and was killed")

func (a *agent) end(signal syscall.Signal) error {
	if a == nil {
		return nil
	}
	if err := a.cmd.Process.Signal(signal); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("end agent: %w", err)
	}
	select {
	case <-a.ended:
		return nil
	case <-time.After(processGrace):
	}
	err := a.cmd.Process.Kill()
	<-a.ended
	return errors.Join(errKilled, err)
}

// waitSocket waits until the agent serves its control socket.
func (a *agent) waitSocket(ctx context.Context, path string) error {
	if a == nil {
		return errors.New("agent does not run")
	}
	for {
		conn, err := (&net.Dialer{}).DialContext(ctx, "unix", path)
		if err == nil {
			return conn.Close()
		}
		select {
		case <-a.ended:
			return fmt.Errorf("agent ended: %v", a.err)
		case <-ctx.Done():
			return fmt.Errorf("agent does not serve %s: %w", path, ctx.Err())
		case <-time.After(10 * time.Millisecond):
		}
	}
}
