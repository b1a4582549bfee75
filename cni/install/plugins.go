package install

import (
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/containernetworking/cni/libcni"

	"github.com/felixlike/felixlike/cni/confdir"
)

// ownPlugin is the plugin that passes requests to the agent. The others are the
// CNI project's, and a node may have its own version of them.
const ownPlugin = "felixlike-cni"

// conflist reads the network configuration and returns it with the plugins that
// it chains.
func (o Options) conflist() (data []byte, plugins []string, err error) {
	path := o.Conflist
	if o.PolicyOnly {
		// The other CNI has installed its plugins.
		data, err = confdir.Chained(o.ConfDir, filepath.Base(path))
		return data, []string{ownPlugin}, err
	}
	if data, err = os.ReadFile(path); err != nil {
		return nil, nil, fmt.Errorf("network configuration: %w", err)
	}
	list, err := libcni.ConfListFromBytes(data)
	if err != nil {
		return nil, nil, fmt.Errorf("network configuration %s: %w", path, err)
	}
	for _, p := range list.Plugins {
		plugins = append(plugins, p.Network.Type)
	}
	if len(plugins) == 0 || plugins[0] != ownPlugin {
		return nil, nil, fmt.Errorf("network configuration %s: its first plugin must be %s, the others are chained to it", path, ownPlugin)
	}
	return data, plugins, nil
}

// place installs a file unless a file of others is there. It writes the record first: a
// recorded file that does not exist does no harm. It replaces files with "felixlike" in
// their names without a check. It returns a description of the change.
func (o Options) place(r Record, files map[string]string, path string, data []byte, mode fs.FileMode) (string, error) {
	name, digest := filepath.Base(path), digestOf(data)
	there, err := fileDigest(path)
	switch {
	case err != nil:
		return "", err
	case there == digest && files[name] == digest:
		return "already installed", nil
	case there != "" && there != files[name] && !strings.Contains(name, "felixlike"):
		return "not ours, left unchanged", nil
	}
	files[name] = digest
	if err := r.write(o.StateDir); err != nil {
		return "", err
	}
	if err := writeFile(path, data, mode); err != nil {
		return "", fmt.Errorf("install %s: %w", path, err)
	}
	if there == "" {
		return "installed", nil
	}
	return "replaced", nil
}

// plugins installs the plugins. It returns an error if a plugin of the configuration is
// missing then.
func (o Options) plugins(r Record, chained []string, report func(Finding)) error {
	entries, err := os.ReadDir(o.Source)
	if err != nil {
		return fmt.Errorf("plugins of this image: %w", err)
	}
	wanted := map[string]bool{}
	for _, name := range chained {
		wanted[name] = true
	}
	for _, e := range entries {
		data, err := os.ReadFile(filepath.Join(o.Source, e.Name()))
		if err != nil {
			return fmt.Errorf("plugin %s: %w", e.Name(), err)
		}
		did, err := o.place(r, r.Plugins, filepath.Join(o.BinDir, e.Name()), data, 0o755)
		if err != nil {
			return err
		}
		report(Finding{Good, "plugin " + e.Name(), did})
		delete(wanted, e.Name())
	}
	for _, name := range slices.Sorted(maps.Keys(wanted)) {
		if _, err := os.Stat(filepath.Join(o.BinDir, name)); err != nil {
			return fmt.Errorf("plugin %s, which the network configuration chains, is neither in this image nor on the node: %w", name, err)
		}
	}
	return nil
}
