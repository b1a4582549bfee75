package install

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/felixlike/felixlike/cni/confdir"
	"github.com/felixlike/felixlike/internal/sysctl"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/ovsfwd/hostnet"
	"github.com/felixlike/felixlike/ovsfwd/wireguard"
)

// Directories on the node. RunDir and StateDir are ours alone. IPAMDir has the IPAM
// plugin's reservations of our network, resultsDir the runtimes' results of all networks.
const (
	runDir     = "/run/felixlike"
	stateDir   = "/var/lib/felixlike"
	ipamDir    = "/var/lib/cni/networks/felixlike"
	resultsDir = "/var/lib/cni/results"
	// network is the name of our network; the names of its results begin with it.
	network = "felixlike"
)

// Remove removes everything that felixlike left on the node. The network configuration goes
// first, so that new pods use the next CNI. Policy goes after the pods' interfaces, so that
// no pod has a network without policy. After a failure the other steps still run, but the
// files stay: a repeated run needs them.
func (l Leftovers) Remove(ctx context.Context, report func(Finding)) error {
	if err := l.ended(ctx); err != nil {
		return err
	}
	record, err := readRecord(filepath.Join(l.Root, stateDir))
	errs := []error{err}
	if err != nil {
		report(Finding{Missing, "record", err.Error()})
	}
	for _, step := range []struct {
		what, did string
		do        func(context.Context, Record) ([]string, error)
	}{
		{"network configuration", "removed", l.configs},
		{"other network configurations", "enabled again:", func(context.Context, Record) ([]string, error) { return confdir.GiveBack(l.ConfDir) }},
		{"pods' interfaces", "removed", l.pods},
		{"bridges", "removed", l.bridges},
		{"routes and rules", "", l.routes},
		{"policy", "no rules are left of backend", func(ctx context.Context, _ Record) ([]string, error) { return l.RemoveBackends(ctx) }},
		{"kernel settings", "restored:", l.settings},
		{"unit for the boot", "removed", l.unit},
		{"plugins", "removed", l.plugins},
		{"files", "removed", func(context.Context, Record) ([]string, error) {
			if errors.Join(errs...) != nil {
				return nil, errKept
			}
			return l.files()
		}},
	} {
		gone, err := step.do(ctx, record)
		if err != nil {
			err = fmt.Errorf("%s: %w", step.what, err)
			report(Finding{Missing, step.what, err.Error()})
			errs = append(errs, err)
			continue
		}
		detail := "nothing is left"
		if len(gone) > 0 {
			detail = step.did + " " + strings.Join(gone, ", ")
		}
		report(Finding{Good, step.what, detail})
	}
	return errors.Join(errs...)
}

// errKept is the error of the last step after another step failed.
var errKept = errors.New("kept: the record in them is needed to remove the rest; repair the errors above and repeat the command")

// Pods of a DaemonSet that was deleted take this long to end at most.
const (
	endingTimeout = time.Minute
	endingPause   = 500 * time.Millisecond
)

// ended waits until the agent and its Open vSwitch have ended.
func (l Leftovers) ended(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, endingTimeout)
	defer cancel()
	for {
		err := l.Running(ctx)
		if err == nil && strings.HasPrefix(l.OVSRunDir, runDir+"/") && served(l.socket()) {
			err = fmt.Errorf("its Open vSwitch still runs (%s)", l.socket())
		}
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("felixlike runs on this node: delete its DaemonSet first: %w", err)
		case <-time.After(endingPause):
		}
	}
}

func (l Leftovers) configs(_ context.Context, r Record) ([]string, error) {
	return removeAll(r.Configs, l.ConfDir)
}

func (l Leftovers) plugins(_ context.Context, r Record) ([]string, error) {
	return removeAll(r.Plugins, l.BinDir)
}

// removeAll removes the files that still have the recorded digest.
func removeAll(files map[string]string, dir string) ([]string, error) {
	var gone []string
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(files)) {
		own, err := removeOwn(files, filepath.Join(dir, name))
		errs = append(errs, err)
		if own {
			gone = append(gone, name)
		}
	}
	return gone, errors.Join(errs...)
}

func (l Leftovers) routes(context.Context, Record) ([]string, error) {
	_, err := wireguard.Remove(model.WireGuardDevice)
	return nil, errors.Join(err, hostnet.Remove(l.Gateway, hostnet.DefaultRouteTable, hostnet.DefaultRulePriority))
}

// settings restores the node's settings from before the first installation.
// Forwarding stays as it is: kube-proxy and the next network rely on it.
func (l Leftovers) settings(_ context.Context, r Record) ([]string, error) {
	var changed []string
	var errs []error
	for _, key := range append(hostnet.NodeSettings(), hostnet.BridgeSettings()...) {
		was, known := r.Settings[key]
		now, err := sysctl.Read(key)
		if !known || err != nil || now == was || strings.Contains(filepath.Base(key), "forward") {
			continue
		}
		errs = append(errs, sysctl.Write(key, was))
		changed = append(changed, key+" = "+was)
	}
	return changed, errors.Join(errs...)
}

// files removes our directories, and the CNI project's directories if they are empty.
func (l Leftovers) files() ([]string, error) {
	var gone []string
	var errs []error
	remove := func(path string, do func(string) error) {
		if _, err := os.Lstat(filepath.Join(l.Root, path)); err != nil {
			return
		}
		if err := do(filepath.Join(l.Root, path)); err != nil {
			errs = append(errs, err)
			return
		}
		gone = append(gone, path)
	}
	results, err := filepath.Glob(filepath.Join(l.Root, resultsDir, network+"-*"))
	errs = append(errs, err)
	for _, path := range results {
		errs = append(errs, os.Remove(path))
	}
	for _, path := range []string{ipamDir, stateDir, runDir} {
		remove(path, os.RemoveAll)
	}
	for _, path := range []string{resultsDir, filepath.Dir(ipamDir), filepath.Dir(resultsDir)} {
		if entries, err := os.ReadDir(filepath.Join(l.Root, path)); err == nil && len(entries) == 0 {
			remove(path, os.Remove)
		}
	}
	return gone, errors.Join(errs...)
}
