package cni

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/containernetworking/cni/libcni"
	types100 "github.com/containernetworking/cni/pkg/types/100"

	"github.com/felixlike/felixlike/cni/protocol"
	"github.com/felixlike/felixlike/model"
)

// loopback is the interface of the plugin loopback, which some runtimes call for each sandbox.
const loopback = "lo"

// unadopted is a pod that was attached before felixlike and cannot be recorded.
type unadopted struct {
	sandbox protocol.Sandbox
	reason  string
}

// Adopt records the pods that were attached before felixlike-cni followed their plugin, as the runtime's copies of the plugins'
// results in a directory describe them (libcni.CacheDir if empty). Problems names those that it cannot record.
func (c *Chained) Adopt(dir string) error {
	copies := libcni.NewCNIConfigWithCacheDir(nil, cmp.Or(dir, libcni.CacheDir), nil)
	all, err := copies.GetCachedAttachments("")
	if err != nil {
		return fmt.Errorf("results of CNI plugins: %w", err)
	}
	for _, of := range all {
		sandbox := protocol.Sandbox{ContainerID: of.ContainerID, NetNS: of.NetNS, Interface: of.IfName}
		for _, arg := range of.CniArgs {
			switch arg[0] {
			case "K8S_POD_NAMESPACE":
				sandbox.PodNamespace = arg[1]
			case "K8S_POD_NAME":
				sandbox.PodName = arg[1]
			}
		}
		if of.IfName == loopback || sandbox.PodName == "" || c.hasOwner(owner{of.ContainerID, of.IfName}) {
			continue // no interface of a pod, or known
		}
		result, err := copies.GetNetworkListCachedResult(
			&libcni.NetworkConfigList{Name: of.Network, CNIVersion: types100.ImplementedSpecVersion}, &libcni.RuntimeConf{ContainerID: of.ContainerID, IfName: of.IfName})
		if err == nil {
			err = c.adopt(&sandbox, result)
		}
		if err != nil {
			c.log.Error("a pod that was attached before felixlike is without policy", "pod", podOf(sandbox).String(), "error", err)
			c.unadopted = append(c.unadopted, unadopted{sandbox, err.Error()})
		}
	}
	return nil
}

// Problems names the pods that Adopt could not record, as long as they are there.
func (c *Chained) Problems() []model.Problem {
	var all []model.Problem
	for _, u := range c.unadopted {
		if namespaceGone(u.sandbox.NetNS) || c.hasOwner(owner{u.sandbox.ContainerID, u.sandbox.Interface}) {
			continue
		}
		all = append(all, model.Problem{
			Object: model.ObjectRef{Kind: "Pod", Namespace: u.sandbox.PodNamespace, Name: u.sandbox.PodName},
			Reason: "no policy applies to it until it is made anew: it was attached before felixlike, and its interface is not known: " + u.reason,
		})
	}
	return all
}

func namespaceGone(path string) bool {
	_, err := os.Stat(path)
	return errors.Is(err, fs.ErrNotExist)
}

// adopt records a sandbox with the result of its plugins, unless its network namespace is gone.
func (c *Chained) adopt(sandbox *protocol.Sandbox, cached any) error {
	result, ok := cached.(*types100.Result)
	if !ok {
		return errors.New("the runtime keeps no result")
	}
	var addresses []string
	for _, ip := range result.IPs {
		if at := ip.Interface; at != nil && *at >= 0 && *at < len(result.Interfaces) {
			if i := result.Interfaces[*at]; i.Name != sandbox.Interface {
				continue
			} else if sandbox.NetNS == "" {
				sandbox.NetNS = i.Sandbox // runtimes with an older libcni
			}
		}
		addresses = append(addresses, ip.Address.String())
	}
	spec, err := specToAdd(*sandbox)
	if err != nil {
		return err
	}
	if namespaceGone(spec.NetNS) {
		return nil // the copy is left over
	}
	a, err := find(spec, addresses)
	if err != nil {
		return err
	}
	c.log.Info("a pod was attached before felixlike: its policy applies from now on", "pod", a.Pod.String(), "interface", a.Interface)
	_, err = c.put(*a)
	return err
}

func (c *Chained) hasOwner(who owner) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, a := range c.all {
		if ownerOf(a) == who {
			return true
		}
	}
	return false
}
