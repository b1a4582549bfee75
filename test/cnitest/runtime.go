// Package cnitest calls the CNI plugin as a container runtime does, for tests of
// the plugin and of the agent behind it.
//
// It knows the specification and nothing of the agent. It is tested by
// the tests that use it.
package cnitest

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	types100 "github.com/containernetworking/cni/pkg/types/100"

	"github.com/felixlike/felixlike/internal/namespace"
)

// The reference plugins, which are built by their own go.mod, as the image has them.
const (
	hostLocal = "github.com/containernetworking/plugins/plugins/ipam/host-local@v1.9.1"
	bandwidth = "github.com/containernetworking/plugins/plugins/meta/bandwidth@v1.9.1"
	bridge    = "github.com/containernetworking/plugins/plugins/main/bridge@v1.9.1"
	ptp       = "github.com/containernetworking/plugins/plugins/main/ptp@v1.9.1"
)

// Build builds felixlike-cni, as it is in the tree, and the reference plugins
// host-local and bandwidth into a directory.
func Build(dir string) error {
	plugin := exec.Command("go", "build", "-o", dir, "github.com/felixlike/felixlike/cmd/felixlike-cni")
	if out, err := plugin.CombinedOutput(); err != nil {
		return fmt.Errorf("build CNI plugin: %w: %s", err, out)
	}
	return install(dir, hostLocal, bandwidth)
}

// BuildMakers builds the reference plugins bridge and ptp, which make pods' interfaces, into a directory.
func BuildMakers(dir string) error { return install(dir, bridge, ptp) }

func install(dir string, plugins ...string) error {
	cmd := exec.Command("go", append([]string{"install"}, plugins...)...)
	cmd.Dir, cmd.Env = "/", append(os.Environ(), "GOBIN="+dir)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build CNI plugins: %v: %w: %s", cmd.Args, err, out)
	}
	return nil
}

// Runtime calls the plugin.
type Runtime struct {
	// Plugins is the directory with felixlike-cni, Socket that of its agent.
	Plugins, Socket string
	// Type is the plugin to call; felixlike-cni if empty.
	Type string
}

// Sandbox has a runtime's facts about a pod's sandbox. Without a pod's name, the runtime
// does not pass one.
type Sandbox struct {
	ID, Namespace, Pod, UID, Interface string
	// NS may be nil.
	NS *namespace.Namespace
}

// Reply is the output of the plugin: a result, or an error.
type Reply struct {
	types100.Result
	Code         uint
	Msg, Details string
	// Raw is all of it, Failed reports that the plugin failed.
	Raw    string
	Failed bool
}

// Prefixes returns the addresses of the result with their gateways.
func (r Reply) Prefixes() []string {
	var all []string
	for _, ip := range r.IPs {
		all = append(all, ip.Address.String()+" via "+ip.Gateway.String())
	}
	return all
}

// Address returns the first address of the result, or the zero Addr.
func (r Reply) Address() netip.Addr {
	if len(r.IPs) == 0 {
		return netip.Addr{}
	}
	addr, _ := netip.AddrFromSlice(r.IPs[0].Address.IP)
	return addr.Unmap()
}

// Command returns the plugin, ready to run for a sandbox. Extra goes into the
// network configuration.
func (r Runtime) Command(ctx context.Context, command, version string, s Sandbox, extra map[string]any) (*exec.Cmd, error) {
	plugin := cmp.Or(r.Type, "felixlike-cni")
	conf := map[string]any{"cniVersion": version, "name": "felixlike", "type": plugin, "socket": r.Socket}
	for k, v := range extra {
		conf[k] = v
	}
	data, err := json.Marshal(conf)
	if err != nil {
		return nil, fmt.Errorf("network configuration: %w", err)
	}
	cmd := exec.CommandContext(ctx, filepath.Join(r.Plugins, plugin))
	cmd.Env = []string{"CNI_COMMAND=" + command, "CNI_PATH=" + r.Plugins, "PATH=" + os.Getenv("PATH")}
	if s.ID != "" {
		args := "IgnoreUnknown=1;OTHER=1"
		if s.Pod != "" {
			args += ";K8S_POD_NAMESPACE=" + s.Namespace + ";K8S_POD_NAME=" + s.Pod + ";K8S_POD_UID=" + s.UID
		}
		cmd.Env = append(cmd.Env, "CNI_CONTAINERID="+s.ID, "CNI_IFNAME="+s.Interface, "CNI_ARGS="+args)
	}
	if s.NS != nil {
		cmd.Env = append(cmd.Env, "CNI_NETNS="+s.NS.Path())
	}
	cmd.Stdin = bytes.NewReader(data)
	return cmd, nil
}

// Call runs the plugin. Its failure is in the reply.
func (r Runtime) Call(ctx context.Context, command, version string, s Sandbox, extra map[string]any) (Reply, error) {
	cmd, err := r.Command(ctx, command, version, s, extra)
	if err != nil {
		return Reply{}, err
	}
	var out, errOut bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errOut
	err = cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		return Reply{}, fmt.Errorf("%s: %w", command, err)
	}
	got := Reply{Raw: out.String() + errOut.String(), Failed: err != nil}
	// Results of older versions have another form.
	if text := out.Bytes(); len(text) > 0 && (got.Failed || version >= "1.0.0") {
		if err := json.Unmarshal(text, &got); err != nil {
			return got, fmt.Errorf("%s: %w: %s", command, err, got.Raw)
		}
	}
	return got, nil
}

// Reserved lists the addresses that host-local has reserved in its directory for
// a network, in order, with the sandboxes that have them.
func Reserved(dir string) (addresses, sandboxes []string, err error) {
	entries, err := os.ReadDir(dir)
	if err != nil && !os.IsNotExist(err) {
		return nil, nil, fmt.Errorf("reservations: %w", err)
	}
	for _, e := range entries {
		if _, err := netip.ParseAddr(e.Name()); err != nil {
			continue
		}
		data, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if os.IsNotExist(err) { // given back since the directory was read
			continue
		}
		if err != nil {
			return nil, nil, fmt.Errorf("reservations: %w", err)
		}
		sandbox, _, _ := strings.Cut(string(data), "\r\n")
		addresses, sandboxes = append(addresses, e.Name()), append(sandboxes, sandbox)
	}
	return addresses, sandboxes, nil
}

// Storm runs the plugin for all sandboxes at once, and returns the
// answers, and the times, the shortest first.
func (r Runtime) Storm(ctx context.Context, command string, all []Sandbox) ([]Reply, []time.Duration, error) {
	took, replies, errs := make([]time.Duration, len(all)), make([]Reply, len(all)), make([]error, len(all))
	var wait sync.WaitGroup
	for i, s := range all {
		wait.Go(func() {
			start := time.Now()
			replies[i], errs[i] = r.Call(ctx, command, "1.1.0", s, nil)
			took[i] = time.Since(start)
		})
	}
	wait.Wait()
	slices.Sort(took)
	for i, reply := range replies {
		if reply.Failed {
			errs[i] = fmt.Errorf("%s of sandbox %s: %s", command, all[i].ID, reply.Raw)
		}
	}
	return replies, took, errors.Join(errs...)
}
