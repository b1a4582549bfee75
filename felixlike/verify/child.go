package verify

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/felixlike/felixlike/felixlike/config"
	"github.com/felixlike/felixlike/felixlike/control"
	"github.com/felixlike/felixlike/felixlike/version"
	"github.com/felixlike/felixlike/internal/printable"
	"github.com/felixlike/felixlike/model"
)

const (
	// deadline bounds one proof. With 100 pods it takes seconds.
	deadline = 2 * time.Minute
	// mostOutput bounds the output of a proof in bytes: it has up to 1,000 regions a difference.
	mostOutput = 16 << 20
	// mostText bounds a text for status in bytes.
	mostText = 600
	// leastPriority is the nice value of the proof.
	leastPriority = 19
	// firstKilled is the oom_score_adj(5) of a process that the kernel kills before others.
	firstKilled = "1000"
	// memoryLimit is the proof's GOMEMLIMIT. felixctl refuses a proof that needs more.
	memoryLimit = "1GiB"
)

// Child proves by felixctl prove live, as a process with the least priority, on one processor.
type Child struct {
	// Path is the path of felixctl, Socket that of the agent's control socket.
	Path, Socket string
	// Deadline bounds one proof; 0 is two minutes.
	Deadline time.Duration
}

// Check returns an error if there is no such felixctl.
func (c Child) Check() error {
	if _, err := exec.LookPath(c.Path); err != nil {
		return fmt.Errorf("verify: %s needs felixctl beside the agent: %w; install it, or set verify to %s", config.VerifyOnResync, err, config.VerifyOff)
	}
	return nil
}

// Prove proves once. It returns when the process has ended: its own end, the deadline, or the context's end.
func (c Child) Prove(ctx context.Context) Answer {
	if c.Deadline == 0 {
		c.Deadline = deadline
	}
	ctx, cancel := context.WithTimeout(ctx, c.Deadline)
	defer cancel()
	cmd := exec.CommandContext(ctx, c.Path, "prove", "live", "--socket", c.Socket, "--timeout", c.Deadline.String(), "-o", "json")
	cmd.Env = append(os.Environ(), "LC_ALL=C", "GOMAXPROCS=1", "GOMEMLIMIT="+memoryLimit)
	// A group of its own: its tools (nft, ovs-ofctl) end with it.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	cmd.Cancel = func() error { return unix.Kill(-cmd.Process.Pid, unix.SIGKILL) }
	cmd.WaitDelay = time.Second
	out, errs := &limited{most: mostOutput}, &limited{most: mostOutput}
	cmd.Stdout, cmd.Stderr = out, errs
	err := run(cmd)
	var a Answer
	var exit *exec.ExitError
	switch {
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		a.Err = fmt.Errorf("%s prove live has no result after %s", c.Path, c.Deadline)
	case out.over || errs.over:
		a.Err = fmt.Errorf("%s prove live: its output is longer than %d bytes", c.Path, mostOutput)
	case err == nil, errors.As(err, &exit) && exit.Exited():
		a = answer(cmd.ProcessState.ExitCode(), out.all.Bytes(), errs.all.String())
	default:
		a.Err = fmt.Errorf("%s prove live: %w", c.Path, err)
	}
	if s := cmd.ProcessState; s != nil {
		a.CPU = s.UserTime() + s.SystemTime() // with the tools
		if usage, ok := s.SysUsage().(*syscall.Rusage); ok {
			a.Memory = usage.Maxrss << 10
		}
	}
	return a
}

// run runs the process with the least priority.
func run(cmd *exec.Cmd) (err error) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		// A process has the priority of the thread that starts it, and is killed when that thread ends. The thread is locked until the goroutine ends,
		// and ends with it: no other goroutine gets the low priority.
		runtime.LockOSThread()
		if err = unix.Setpriority(unix.PRIO_PROCESS, 0, leastPriority); err != nil {
			err = fmt.Errorf("setpriority: %w", err)
			return
		}
		if err = cmd.Start(); err != nil {
			return
		}
		adjust := os.WriteFile("/proc/"+strconv.Itoa(cmd.Process.Pid)+"/oom_score_adj", []byte(firstKilled), 0)
		if adjust != nil {
			adjust = errors.Join(adjust, cmd.Cancel())
		}
		if err = cmd.Wait(); adjust != nil {
			err = fmt.Errorf("%w (%w)", adjust, err)
		}
	}()
	<-done
	return err
}

// limited keeps output up to a bound. Beyond it, Write fails, which ends the process that writes.
type limited struct {
	most int
	all  bytes.Buffer
	over bool
}

func (l *limited) Write(data []byte) (int, error) {
	if l.all.Len()+len(data) > l.most {
		l.over = true
		return 0, io.ErrShortWrite
	}
	return l.all.Write(data)
}

// certificate is what felixctl prove prints (cmd/felixctl/dump/cli), as far as it is used. A is the programmed state, B the policies'.
type certificate struct {
	Equal       bool              `json:"equal"`
	Version     string            `json:"version"`
	NotProved   []string          `json:"notProved"`
	Classes     []control.Classes `json:"classes"`
	Differences []difference      `json:"differences"`
}

type difference struct {
	A          string     `json:"a"`
	B          string     `json:"b"`
	Way        string     `json:"way"`
	Connection string     `json:"connection"`
	Packet     packet     `json:"packet"`
	Regions    []struct{} `json:"regions"`
}

// packet is the smallest packet that differs. From and To are names of pods and nodes, if it has such ends.
type packet struct {
	From        string     `json:"from"`
	To          string     `json:"to"`
	Source      netip.Addr `json:"source"`
	Destination netip.Addr `json:"destination"`
	Protocol    string     `json:"protocol"`
	Port        uint16     `json:"port"`
}

func (p packet) String() string {
	end := func(a netip.Addr, name string) string {
		if name == "" {
			return a.String()
		}
		return fmt.Sprintf("%s (%s)", a, name)
	}
	text := fmt.Sprintf("%s -> %s %s", end(p.Source, p.From), end(p.Destination, p.To), p.Protocol)
	switch {
	case strings.HasPrefix(p.Protocol, "icmp"):
		kind, code := model.ICMPTypeAndCode(p.Port)
		text += fmt.Sprintf(" type %d code %d", kind, code)
	case p.Port != 0:
		text += fmt.Sprintf(" %d", p.Port)
	}
	return text
}

// answer reads the output of felixctl prove, by its exit code.
func answer(code int, out []byte, errs string) Answer {
	const failed = 2
	errs = strings.TrimPrefix(strings.TrimSpace(errs), "felixctl: ")
	if code == failed {
		if what, ok := strings.CutPrefix(errs, "not proved: "); ok {
			return Answer{NotProved: short(what)}
		}
		return Answer{Err: errors.New("felixctl prove live: " + short(errs))}
	}
	var c certificate
	if err := json.Unmarshal(out, &c); err != nil {
		return Answer{Err: fmt.Errorf("the output of felixctl prove live (exit code %d) cannot be read: %w %s", code, err, short(errs))}
	}
	if agent := version.String(); c.Version != agent {
		return Answer{Err: fmt.Errorf("felixctl has version %q and the agent %q: it may compute other rules", short(c.Version), agent)}
	}
	switch {
	case code == 0 && c.Equal && len(c.Differences)+len(c.NotProved) == 0:
		return Answer{Compared: true, Classes: c.Classes}
	case code == 1 && len(c.Differences) > 0 && c.Differences[0].Packet.Source.IsValid():
		return Answer{Difference: short(c.difference())}
	case code == 3 && !c.Equal && len(c.Differences) == 0 && len(c.NotProved) > 0:
		return Answer{NotProved: short(strings.Join(c.NotProved, " ")), Compared: true, Classes: c.Classes}
	}
	return Answer{Err: fmt.Errorf("the output of felixctl prove live does not fit its exit code %d", code)}
}

// difference describes the smallest packet that differs.
func (c *certificate) difference() string {
	regions := 0
	for _, d := range c.Differences {
		regions += len(d.Regions)
	}
	d := c.Differences[0]
	text := fmt.Sprintf("%s: programmed: %s; policies: %s (%s, connection: %s)", d.Packet, d.A, d.B, d.Way, d.Connection)
	if regions > 1 {
		text += fmt.Sprintf("; one of %d regions that differ", regions)
	}
	return text
}

// short returns a text on one line that is not too long for status.
func short(text string) string {
	text = strings.Join(strings.Fields(text), " ")
	if len(text) > mostText {
		text = text[:mostText] + "..."
	}
	return printable.String(text)
}
