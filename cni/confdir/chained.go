package confdir

import (
	"encoding/json"
	"fmt"
	"path/filepath"

	"github.com/containernetworking/cni/libcni"

	"github.com/felixlike/felixlike/internal/files"
)

// ownPlugin is the plugin that passes requests to the agent.
const ownPlugin = "felixlike-cni"

// Chained returns the network configuration by which felixlike-cni follows the plugins of another CNI: a copy of the other CNI's
// first configuration in the directory, by name, with felixlike-cni behind all its plugins. The plugin bridge gets macspoofchk in
// the copy, unless the configuration says otherwise: without it, a pod can send as another one of its node. own is the name of our file.
func Chained(dir, own string) ([]byte, error) {
	found, err := Read(dir, own)
	if err != nil {
		return nil, err
	}
	others := append(found.Before, found.After...)
	if len(others) == 0 {
		return nil, fmt.Errorf("there is no network configuration of another CNI in %s, which trafficMode networkPolicyOnly needs: install that CNI first", dir)
	}
	path := filepath.Join(dir, others[0])
	text, err := files.Read(path, maxConfig)
	if err != nil {
		return nil, fmt.Errorf("network configuration: %w", err)
	}
	chained, err := chain(text, filepath.Ext(path) == ".conflist")
	if err != nil {
		return nil, fmt.Errorf("network configuration %s: %w", path, err)
	}
	return chained, nil
}

// chain returns the configuration with felixlike-cni as its last plugin. list says whether it is a list of plugins, or that of one.
func chain(text []byte, list bool) ([]byte, error) {
	config := map[string]any{}
	if err := json.Unmarshal(text, &config); err != nil {
		return nil, err
	}
	if !list {
		one := config
		config = map[string]any{"cniVersion": one["cniVersion"], "name": one["name"], "plugins": []any{one}}
	}
	plugins, _ := config["plugins"].([]any)
	for _, p := range plugins {
		if settings, ok := p.(map[string]any); ok {
			checkSource(settings)
		}
	}
	config["plugins"] = append(plugins, map[string]any{"type": ownPlugin})
	out, err := json.MarshalIndent(config, "", "  ")
	if err != nil {
		return nil, err
	}
	if _, err := libcni.ConfListFromBytes(out); err != nil {
		return nil, err
	}
	return append(out, '\n'), nil
}

// checkSource gives a plugin bridge macspoofchk, unless its settings say otherwise. The plugin flannel makes the settings of another
// plugin, by default of bridge.
func checkSource(settings map[string]any) {
	if settings["type"] == "flannel" {
		delegate, _ := settings["delegate"].(map[string]any)
		if delegate == nil {
			delegate = map[string]any{}
		}
		if _, set := delegate["type"]; !set {
			delegate["type"] = "bridge"
		}
		settings["delegate"], settings = delegate, delegate
	}
	if _, set := settings["macspoofchk"]; settings["type"] == "bridge" && !set {
		settings["macspoofchk"] = true
	}
}
