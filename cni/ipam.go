package cni

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/containernetworking/cni/pkg/invoke"
	"github.com/containernetworking/cni/pkg/types"
	types100 "github.com/containernetworking/cni/pkg/types/100"

	"github.com/felixlike/felixlike/model"
)

const (
	// DefaultIPAMDir is where host-local keeps the reservations of all networks.
	DefaultIPAMDir = "/var/lib/cni/networks"
	// ipamNetwork is the name of the network and of the directory with its reservations.
	ipamNetwork = "felixlike"
	ipamPlugin  = "host-local"
	ipamVersion = "1.0.0"
)

// ipam runs the reference plugin host-local, which owns the reservations: one file
// an address, with the sandbox that has it.
type ipam struct {
	plugin, dir string
	// one keeps processes from queueing for host-local's lock.
	one sync.Mutex
}

func newIPAM(pluginDir, dir string) *ipam {
	if dir == "" {
		dir = DefaultIPAMDir
	}
	return &ipam{plugin: filepath.Join(pluginDir, ipamPlugin), dir: dir}
}

// reservation is an address and the sandbox that has it.
type reservation struct {
	addr           netip.Addr
	sandbox, iface string
}

// installed returns an error unless the plugin is there.
func (i *ipam) installed() error {
	info, err := os.Stat(i.plugin)
	if err == nil && (info.IsDir() || info.Mode()&0o111 == 0) {
		err = fmt.Errorf("%s is not a program", i.plugin)
	}
	if err != nil {
		return fmt.Errorf("IPAM plugin: %w", err)
	}
	return nil
}

// ipamConfig is host-local's configuration.
type ipamConfig struct {
	CNIVersion string `json:"cniVersion"`
	Name       string `json:"name"`
	IPAM       struct {
		Type    string        `json:"type"`
		DataDir string        `json:"dataDir"`
		Ranges  [][]ipamRange `json:"ranges"`
	} `json:"ipam"`
}

type ipamRange struct {
	Subnet string `json:"subnet"`
}

func (i *ipam) config(prefixes []netip.Prefix) ([]byte, error) {
	c := ipamConfig{CNIVersion: ipamVersion, Name: ipamNetwork}
	c.IPAM.Type, c.IPAM.DataDir = ipamPlugin, i.dir
	for _, p := range prefixes {
		c.IPAM.Ranges = append(c.IPAM.Ranges, []ipamRange{{Subnet: p.String()}})
	}
	return json.Marshal(c)
}

// add reserves an address of each prefix of the node. It first releases earlier
// reservations of the sandbox: nothing uses them.
func (i *ipam) add(ctx context.Context, node *model.Node, sandbox, iface, netns string) ([]netip.Addr, error) {
	i.one.Lock()
	defer i.one.Unlock()
	held, err := i.reservations()
	if err != nil {
		return nil, fmt.Errorf("reserve addresses: %w", err)
	}
	if slices.ContainsFunc(held, func(r reservation) bool { return r.sandbox == sandbox && r.iface == iface }) {
		if err := i.release(ctx, sandbox, iface); err != nil {
			return nil, fmt.Errorf("reserve addresses: %w", err)
		}
	}
	conf, err := i.config(node.PodCIDRs)
	if err != nil {
		return nil, fmt.Errorf("reserve addresses: %w", err)
	}
	reply, err := invoke.ExecPluginWithResult(ctx, i.plugin, conf, ipamArgs{"ADD", sandbox, iface, netns}, nil)
	if err != nil {
		err = fmt.Errorf("reserve addresses in %s: %s: %w", prefixList(node.PodCIDRs), ipamPlugin, err)
		return nil, errors.Join(err, i.undo(ctx, sandbox, iface))
	}
	addresses, err := addressesIn(reply)
	if err == nil && len(addresses) != len(node.PodCIDRs) {
		err = fmt.Errorf("%d addresses for %s", len(addresses), prefixList(node.PodCIDRs))
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("reserve addresses: %s: %w", ipamPlugin, err), i.undo(ctx, sandbox, iface))
	}
	return addresses, nil
}

// undo releases the addresses of a failed reservation. host-local does this itself unless
// it was killed, and it is killed when its caller hangs up.
func (i *ipam) undo(ctx context.Context, sandbox, iface string) error {
	held, err := i.reservations()
	if err != nil {
		return err
	}
	err = i.dropEmpty(held)
	if !slices.ContainsFunc(held, func(r reservation) bool { return r.sandbox == sandbox && r.iface == iface }) {
		return err
	}
	return errors.Join(err, undo(ctx, func(ctx context.Context) error { return i.release(ctx, sandbox, iface) }))
}

// del releases the reservations of a sandbox. It is no error if there are none.
func (i *ipam) del(ctx context.Context, sandbox, iface string) error {
	i.one.Lock()
	defer i.one.Unlock()
	return i.release(ctx, sandbox, iface)
}

func (i *ipam) release(ctx context.Context, sandbox, iface string) error {
	// host-local releases by sandbox and interface alone, but refuses a configuration
	// without a range. So any range will do, and del needs no pod prefix of this node.
	conf, err := i.config([]netip.Prefix{netip.PrefixFrom(netip.AddrFrom4([4]byte{192, 0, 2, 0}), 24)})
	if err == nil {
		err = invoke.ExecPluginWithoutResult(ctx, i.plugin, conf, ipamArgs{"DEL", sandbox, iface, ""}, nil)
	}
	if err != nil {
		return fmt.Errorf("release addresses of sandbox %s: %s: %w", sandbox, ipamPlugin, err)
	}
	return nil
}

// reservations reads all reservations, in order of address.
func (i *ipam) reservations() ([]reservation, error) {
	dir := filepath.Join(i.dir, ipamNetwork)
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("list reservations: %w", err)
	}
	var all []reservation
	for _, entry := range entries {
		// There are other files: a lock, and the last address of each range.
		addr, err := netip.ParseAddr(entry.Name())
		if err != nil {
			continue
		}
		data, err := os.ReadFile(filepath.Join(dir, entry.Name()))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("list reservations: %w", err)
		}
		sandbox, iface, _ := strings.Cut(strings.TrimSpace(string(data)), "\n")
		all = append(all, reservation{addr: addr, sandbox: strings.TrimSpace(sandbox), iface: strings.TrimSpace(iface)})
	}
	slices.SortFunc(all, func(a, b reservation) int { return a.addr.Compare(b.addr) })
	return all, nil
}

// dropEmpty removes the reservations that name no sandbox: host-local was killed after it
// made the file and before it wrote the sandbox, so no DEL releases it. No other host-local
// must run.
func (i *ipam) dropEmpty(all []reservation) error {
	var errs []error
	for _, r := range all {
		if r.sandbox == "" {
			errs = append(errs, os.Remove(filepath.Join(i.dir, ipamNetwork, r.addr.String())))
		}
	}
	return errors.Join(errs...)
}

// addressesIn returns the addresses of a result, IPv4 first.
func addressesIn(reply types.Result) ([]netip.Addr, error) {
	result, err := types100.NewResultFromResult(reply)
	if err != nil {
		return nil, err
	}
	var all []netip.Addr
	for _, ip := range result.IPs {
		addr, ok := netip.AddrFromSlice(ip.Address.IP)
		if !ok {
			return nil, fmt.Errorf("%v is not an address", ip.Address)
		}
		all = append(all, addr.Unmap())
	}
	slices.SortFunc(all, netip.Addr.Compare)
	return all, nil
}

func prefixList(all []netip.Prefix) string {
	texts := make([]string, len(all))
	for i, p := range all {
		texts[i] = p.String()
	}
	return strings.Join(texts, " and ")
}

// ipamArgs are command, sandbox, interface and network namespace.
type ipamArgs [4]string

// AsEnv implements invoke.CNIArgs. The plugin gets no variable of the agent's environment.
func (a ipamArgs) AsEnv() []string {
	return []string{
		"CNI_COMMAND=" + a[0], "CNI_CONTAINERID=" + a[1], "CNI_IFNAME=" + a[2], "CNI_NETNS=" + a[3],
		"CNI_PATH=" + "/", "CNI_NETNS_OVERRIDE=TRUE",
	}
}

// undo runs a cleaning function although ctx may have ended, for a bounded time.
func undo(ctx context.Context, clean func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTimeout)
	defer cancel()
	return clean(ctx)
}
