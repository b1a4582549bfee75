package ovsdaemon

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"sync/atomic"
	"syscall"
	"time"
)

// stopGrace is how long a daemon may take to end by itself. ovs-vswitchd with
// thousands of flows needs well under a second.
const stopGrace = 5 * time.Second

// process is one foreground child. A nil process is one that does not run.
type process struct {
	name string
	cmd  *exec.Cmd
	// ended is closed after the child was reaped; err is why it ended.
	ended chan struct{}
	err   error
	// hung reports that its watchdog has killed it.
	hung atomic.Bool
}

func startProcess(name string, argv, env []string, log *os.File) (*process, error) {
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Env = env
	if log != nil {
		cmd.Stderr = log
	}
	// A session of its own: an interrupt from the terminal is for the caller, which then stops the daemons in
	// order.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	p := &process{name: name, cmd: cmd, ended: make(chan struct{})}
	go func() {
		defer close(p.ended)
		p.err = cmd.Wait()
	}()
	return p, nil
}

// wait waits until something listens on the socket.
func (p *process) wait(ctx context.Context, socket string) error {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		conn, err := net.Dial("unix", socket)
		if err == nil {
			return conn.Close()
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s does not serve %s: %w", p.name, socket, errors.Join(ctx.Err(), err))
		case <-p.ended:
			return fmt.Errorf("%s ended at start: %w (see its log beside %s)", p.name, p.exit(), socket)
		case <-tick.C:
		}
	}
}

// exit returns why an ended process ended; a clean exit counts as one too.
func (p *process) exit() error {
	if p.err != nil {
		return p.err
	}
	return errors.New("exit status 0")
}

// running returns a channel that is closed when the process ends; nil for one
// that does not run.
func (p *process) running() <-chan struct{} {
	if p.pid() == 0 {
		return nil
	}
	return p.ended
}

func (p *process) pid() int {
	if p == nil {
		return 0
	}
	select {
	case <-p.ended:
		return 0
	default:
		return p.cmd.Process.Pid
	}
}

// stop asks the process to end, and kills it when it does not. A process that
// had ended before by itself is reported as an error.
func (p *process) stop() error {
	if p == nil {
		return nil
	}
	select {
	case <-p.ended:
		return fmt.Errorf("%s had ended: %w", p.name, p.exit())
	default:
	}
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return fmt.Errorf("stop %s: %w", p.name, err)
	}
	select {
	case <-p.ended:
		return nil
	case <-time.After(stopGrace):
		return p.kill()
	}
}

func (p *process) kill() error {
	if p == nil {
		return nil
	}
	if err := p.cmd.Process.Kill(); err != nil {
		return fmt.Errorf("kill %s: %w", p.name, err)
	}
	<-p.ended
	return nil
}
