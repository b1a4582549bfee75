package kubelab

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// WorkVariable is the environment variable with the folder that clusters are built and kept in.
const WorkVariable = "FELIXLIKE_CLUSTER_WORK"

// Kit is kubelab's scripts and the folder they build in.
type Kit struct {
	dir, work string
}

// Find returns the kit of the source tree that holds the current folder. The error is the reason why no
// cluster can be brought up here.
func Find() (*Kit, error) {
	if os.Geteuid() != 0 {
		return nil, errors.New("a cluster needs root")
	}
	for _, tool := range []string{"ip", "nft", "iptables", "nsenter", "unshare", "pgrep", "bash"} {
		if _, err := exec.LookPath(tool); err != nil {
			return nil, fmt.Errorf("a cluster needs the program %s", tool)
		}
	}
	root, err := Root()
	if err != nil {
		return nil, err
	}
	work := os.Getenv(WorkVariable)
	if work == "" {
		cache, err := os.UserCacheDir()
		if err != nil {
			return nil, fmt.Errorf("no folder to build in: set %s: %w", WorkVariable, err)
		}
		work = filepath.Join(cache, "felixlike", "kubelab")
	}
	return &Kit{dir: filepath.Join(root, "test/cluster/kubelab/scripts"), work: work}, nil
}

// Root returns the top of the source tree that holds the current folder.
func Root() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for ; ; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir, nil
		}
		if dir == filepath.Dir(dir) {
			return "", errors.New("no go.mod above the current folder")
		}
	}
}

// group is one argument of build.sh with its products.
type group struct {
	name  string
	makes []string
}

// groups returns the parts of a cluster and of the upstream specs, in the order in
// which they have to be built.
func groups() []group {
	return []group{
		{"deb", []string{"bin/etcd", "bin/containerd", "bin/runc", "bin/ctr", "bin/busybox", "deb/root/bin/nc.openbsd"}},
		{"kube", []string{"bin/kube-apiserver", "bin/kube-controller-manager", "bin/kube-scheduler", "bin/kubectl", "bin/kubelet", "bin/kube-proxy", "bin/agnhost"}},
		{"cni", []string{"cni-bin/bridge", "cni-bin/host-local", "cni-bin/loopback", "cni-bin/portmap"}},
		{"dns", []string{"bin/coredns"}},
		{"images", []string{"bin/tool", "bin/clients", "images/pause.tar", "images/agnhost.tar"}},
		{peerGroup, []string{"peer/kube-proxy"}},
		{specsGroup, []string{"bin/e2e.test", "bin/ginkgo", "images/regression-issue-74839.tar"}},
	}
}

const (
	// specsGroup is the group with upstream's specs, which no other part needs.
	specsGroup = "e2e"
	// peerGroup has a kube-proxy that is compiled as upstream's, for measurements: the other programs are compiled in less time, and run slower.
	peerGroup = "peer"
)

// Build builds the missing parts, with upstream's specs or without them: none, or some minutes' work.
func (k *Kit) Build(ctx context.Context, specs bool) error {
	return k.build(ctx, func(g group) bool { return g.name != peerGroup && (specs || g.name != specsGroup) })
}

// Peer returns the path of a kube-proxy for measurements, and builds it first if it is missing.
func (k *Kit) Peer(ctx context.Context) (string, error) {
	return filepath.Join(k.work, "peer/kube-proxy"), k.build(ctx, func(g group) bool { return g.name == peerGroup })
}

// build builds the missing groups among the wanted ones.
func (k *Kit) build(ctx context.Context, wanted func(group) bool) error {
	if err := os.MkdirAll(k.work, 0o755); err != nil {
		return fmt.Errorf("make the work folder: %w", err)
	}
	release, err := lock(ctx, k.buildLock())
	if err != nil {
		return err
	}
	defer release()
	for _, g := range groups() {
		if k.has(g) || !wanted(g) {
			continue
		}
		if _, err := k.script(ctx, nil, "build.sh", g.name); err != nil {
			return fmt.Errorf("build %s: %w", g.name, err)
		}
	}
	return nil
}

func (k *Kit) buildLock() string { return filepath.Join(k.work, "build.lock") }

// Building reports whether a process builds the parts at this moment: Build then waits for it.
func (k *Kit) Building() bool {
	file, err := os.Open(k.buildLock())
	if err != nil {
		return false // nobody has ever built here
	}
	defer file.Close() // with the lock, if it was free
	return errors.Is(unix.Flock(int(file.Fd()), unix.LOCK_SH|unix.LOCK_NB), unix.EWOULDBLOCK)
}

// Built reports whether the parts of a cluster are built.
func (k *Kit) Built() bool {
	return !slices.ContainsFunc(groups(), func(g group) bool { return g.name != specsGroup && g.name != peerGroup && !k.has(g) })
}

// HasSpecs reports whether upstream's specs are built.
func (k *Kit) HasSpecs() bool {
	return slices.ContainsFunc(groups(), func(g group) bool { return g.name == specsGroup && k.has(g) })
}

func (k *Kit) has(g group) bool {
	for _, file := range g.makes {
		if _, err := os.Stat(filepath.Join(k.work, file)); err != nil {
			return false
		}
	}
	return true
}

// Bin returns the path of a program that was built.
func (k *Kit) Bin(name string) string { return filepath.Join(k.work, "bin", name) }

// Work returns the folder that everything is built and kept in.
func (k *Kit) Work() string { return k.work }

// Image makes an image out of static programs, each named as "path:/path/in/image"; the
// first is the entrypoint.
func (k *Kit) Image(ctx context.Context, archive, reference string, programs ...string) error {
	args := []string{"image", "-o", archive, "-ref", reference}
	for _, p := range programs {
		args = append(args, "-add", p)
	}
	_, entry, _ := strings.Cut(programs[0], ":")
	return run(exec.CommandContext(ctx, k.Bin("tool"), append(args, "-entrypoint", entry)...), nil)
}

// script runs one of the kit's scripts and returns its output.
func (k *Kit) script(ctx context.Context, environ []string, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, filepath.Join(k.dir, name), args...)
	cmd.Env = append(os.Environ(), append([]string{"WORK=" + k.work}, environ...)...)
	var out strings.Builder
	err := run(cmd, &out)
	return out.String(), err
}

// run runs a command; its error has the end of the command's output.
func run(cmd *exec.Cmd, out *strings.Builder) error {
	var all strings.Builder
	if out == nil {
		out = &all
	}
	var errs strings.Builder
	cmd.Stdout, cmd.Stderr = out, &errs
	// Daemons that a script leaves behind may keep its outputs open.
	cmd.WaitDelay = waitDelay
	err := cmd.Run()
	if errors.Is(err, exec.ErrWaitDelay) {
		err = nil
	}
	if err != nil {
		return fmt.Errorf("%s: %w: %s", filepath.Base(cmd.Path), err, tail(errs.String()+out.String()))
	}
	return nil
}

// tail returns the end of a text.
func tail(text string) string {
	const most = 2000
	text = strings.TrimSpace(text)
	if len(text) > most {
		return "..." + text[len(text)-most:]
	}
	return text
}
