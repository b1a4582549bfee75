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
	// memoryLimit is the proof's GOMEMLIMIT. felixctl refuses a proof that needs more.
	memoryLimit = "1GiB"
	// mostMemory is the RLIMIT_DATA of felixctl, and of each of its tools, in bytes. It counts writable memory only: Go reserves much more.
	mostMemory = 2 << 30
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
		return fmt.Errorf("verify needs felixctl beside the agent: %w; install it, or set verify to %s", err, config.VerifyOff)
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
	// After SIGTERM, felixctl ends its tools and waits for them. After WaitDelay it is killed.
	cmd.Cancel = func() error { return cmd.Process.Signal(unix.SIGTERM) }
	cmd.WaitDelay = 10 * time.Second // it has the lowest priority
	out, errs := &limited{most: mostOutput}, &limited{most: mostOutput}
	cmd.Stdout, cmd.Stderr = out, errs
	began := time.Now()
	left, err := run(cmd)
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
		// With the tools that felixctl has waited for.
		a.CPU = s.UserTime() + s.SystemTime() + time.Duration(left.Utime.Nano()+left.Stime.Nano())
		a.Memory = left.Maxrss << 10
		if usage, ok := s.SysUsage().(*syscall.Rusage); ok {
			a.Memory = max(usage.Maxrss, left.Maxrss) << 10
		}
		if !s.Exited() {
			a.CPU = max(a.CPU, time.Since(began)) // the time of its tools is not known
		}
	}
	return a
}

// run runs the process with the least priority, and ends its group with it. left is what the group used that the process has not waited for.
func run(cmd *exec.Cmd) (left unix.Rusage, err error) {
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
		pid := cmd.Process.Pid
		unlimited := unix.Prlimit(pid, unix.RLIMIT_DATA, &unix.Rlimit{Cur: mostMemory, Max: mostMemory}, nil)
		if unlimited != nil {
			unlimited = errors.Join(fmt.Errorf("prlimit: %w", unlimited), cmd.Process.Kill())
		}
		// The group is killed before Wait, which frees its number for another process.
		for errors.Is(unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil), unix.EINTR) {
		}
		_ = unix.Kill(-pid, unix.SIGKILL) // fails only if the group is gone
		err = errors.Join(unlimited, cmd.Wait())
		left = reap(pid)
	}()
	<-done
	return left, err
}

// reap waits for the processes of a killed group that are children of this process, and returns what they used. A process whose parent has died becomes
// a child of an agent that is process 1 of its container.
func reap(group int) (used unix.Rusage) {
	for {
		var one unix.Rusage
		switch _, err := unix.Wait4(-group, nil, 0, &one); {
		case err == nil:
			used.Utime = unix.NsecToTimeval(used.Utime.Nano() + one.Utime.Nano())
			used.Stime = unix.NsecToTimeval(used.Stime.Nano() + one.Stime.Nano())
			used.Maxrss = max(used.Maxrss, one.Maxrss)
		case !errors.Is(err, unix.EINTR):
			return used // there is none
		}
	}
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

// answer reads the output of felixctl prove, by its exit code. Its error is the last thing in errs, after lines about its progress.
func answer(code int, out []byte, errs string) Answer {
	const failed, begin = 2, "\nfelixctl: "
	if at := strings.LastIndex("\n"+errs, begin); at >= 0 {
		errs = errs[at+len(begin)-1:]
	}
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
