package iptables

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"time"

	"github.com/felixlike/felixlike/internal/namespace"
	"github.com/felixlike/felixlike/model"
)

// tools are the programs of one variant. They count how often they ran.
type tools struct {
	variant  Variant
	families []model.Family
	netns    int
	// save and restore are the paths of the programs; nil before find.
	save, restore map[model.Family]string
	// wait is how many seconds a program waits for the lock that all legacy
	// programs share, before it gives up and we try again.
	wait            int
	saves, restores int
	// begin starts a program that writes; nil for no other start than usual.
	begin starter
}

// starter starts a program, and returns the function to call when it has ended.
type starter func(*exec.Cmd) (ended func(), err error)

// newTools returns the programs of a variant, which find has to look up.
func newTools(v Variant, families []model.Family, netns int) *tools {
	return &tools{variant: v, families: families, netns: netns, wait: lockWait}
}

// programs returns the names of one program in the variant: by its own name,
// and by the one that the distribution gives to the variant of its choice.
func programs(v Variant, f model.Family, program string) (own, chosen string) {
	base := "iptables"
	if f == model.IPv6 {
		base = "ip6tables"
	}
	return base + "-" + v.String() + "-" + program, base + "-" + program
}

// find looks the programs up, once.
func (t *tools) find(ctx context.Context) error {
	if t.save != nil {
		return nil
	}
	if t.variant != Legacy && t.variant != NFT {
		return fmt.Errorf("iptables variant %s cannot be programmed: it must be %s or %s", t.variant, Legacy, NFT)
	}
	save, restore := map[model.Family]string{}, map[model.Family]string{}
	for _, f := range t.families {
		var errs [2]error
		save[f], errs[0] = findProgram(ctx, t.variant, f, "save")
		restore[f], errs[1] = findProgram(ctx, t.variant, f, "restore")
		if err := errors.Join(errs[:]...); err != nil {
			return err
		}
	}
	t.save, t.restore = save, restore
	return nil
}

func findProgram(ctx context.Context, v Variant, f model.Family, program string) (string, error) {
	own, chosen := programs(v, f, program)
	path, err := exec.LookPath(own)
	if err == nil {
		return path, nil
	}
	path, errChosen := exec.LookPath(chosen)
	if errChosen != nil {
		return "", fmt.Errorf("iptables variant %s: %w", v, err)
	}
	out, err := run(ctx, 0, nil, nil, path, "--version")
	if err != nil {
		return "", err
	}
	if variantOf(string(out)) != v {
		return "", fmt.Errorf("iptables variant %s: neither %s nor %s is it: %w", v, own, chosen, exec.ErrNotFound)
	}
	return path, nil
}

// variantOf reads the answer to --version. Before 1.8 there was one variant only, and
// the answer did not name it.
func variantOf(version string) Variant {
	if strings.Contains(version, "(nf_tables)") {
		return NFT
	}
	return Legacy
}

// lockWait is the wait of tools.
const lockWait = 5

// dump returns the observed state of all tables of a family, as the tool prints it.
func (t *tools) dump(ctx context.Context, f model.Family, flags ...string) ([]byte, error) {
	t.saves++
	return run(ctx, t.netns, nil, nil, t.save[f], flags...)
}

// load carries the commands out.
func (t *tools) load(ctx context.Context, f model.Family, commands []byte) error {
	t.restores++
	_, err := run(ctx, t.netns, t.begin, commands, t.restore[f], "--noflush", fmt.Sprintf("--wait=%d", t.wait))
	return err
}

// run runs a program in the network namespace, with the input, and returns its output.
// The program is killed when the context ends, and when the agent dies: a restore that
// outlives the agent could write after the next agent has read.
func run(ctx context.Context, netns int, begin starter, input []byte, path string, args ...string) (out []byte, err error) {
	// The child is in the namespace of the thread that starts it, and is killed when that
	// thread ends.
	if netns == 0 {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		return execute(ctx, begin, input, path, args)
	}
	err = namespace.In(netns, func() (err error) {
		out, err = execute(ctx, begin, input, path, args)
		return err
	})
	return out, err
}

func execute(ctx context.Context, begin starter, input []byte, path string, args []string) ([]byte, error) {
	c := exec.CommandContext(ctx, path, args...)
	// Messages are read by us.
	c.Env = append(os.Environ(), "LC_ALL=C")
	c.Stdin = bytes.NewReader(input)
	var out, stderr bytes.Buffer
	c.Stdout, c.Stderr = &out, &stderr
	c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	c.WaitDelay = time.Second
	if begin == nil {
		begin = func(c *exec.Cmd) (func(), error) { return func() {}, c.Start() }
	}
	ended, err := begin(c)
	if err == nil {
		err = c.Wait()
		ended()
	}
	var exit *exec.ExitError
	switch {
	case ctx.Err() != nil:
		return nil, fmt.Errorf("%s: %w", path, context.Cause(ctx))
	case errors.As(err, &exit) && exit.Exited():
		return nil, &exitError{program: path, code: exit.ExitCode(), stderr: strings.TrimSpace(stderr.String())}
	case err != nil:
		return nil, fmt.Errorf("run %s: %w", path, err)
	}
	return out.Bytes(), nil
}
