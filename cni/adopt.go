package cni

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"

	"github.com/containernetworking/cni/libcni"
	types100 "github.com/containernetworking/cni/pkg/types/100"

	"github.com/felixlike/felixlike/cni/protocol"
	"github.com/felixlike/felixlike/model"
)

// podInterface is the name that the runtimes of Kubernetes give the pod's interface. Others are of the plugin loopback, and of
// secondary networks.
const podInterface = "eth0"

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
	var failed []unadopted
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
		if of.IfName != podInterface || sandbox.PodName == "" || c.hasOwner(owner{of.ContainerID, of.IfName}) {
			continue // no interface of a pod, or known
		}
		result, err := copies.GetNetworkListCachedResult(
			&libcni.NetworkConfigList{Name: of.Network, CNIVersion: types100.ImplementedSpecVersion}, &libcni.RuntimeConf{ContainerID: of.ContainerID, IfName: of.IfName})
		if err == nil {
			err = c.adopt(&sandbox, result)
		}
		if err != nil {
			failed = append(failed, unadopted{sandbox, err.Error()})
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, u := range failed {
		if !slices.Contains(c.unadopted, u) {
			c.log.Error("a pod has no policy, because its interface is not known", "pod", podOf(u.sandbox).String(), "error", u.reason)
		}
	}
	c.unadopted = failed
	return nil
}

// Problems names the pods that Adopt could not record, as long as they are there.
func (c *Chained) Problems() []model.Problem {
	c.mu.Lock()
	failed := c.unadopted
	c.mu.Unlock()
	var all []model.Problem
	for _, u := range failed {
		if namespaceGone(u.sandbox.NetNS) || c.hasOwner(owner{u.sandbox.ContainerID, u.sandbox.Interface}) {
			continue
		}
		all = append(all, model.Problem{
			Object: model.ObjectRef{Kind: "Pod", Namespace: u.sandbox.PodNamespace, Name: u.sandbox.PodName},
			Reason: "has no policy, because the agent cannot find its interface (" + u.reason + "): delete the pod, so that it is made anew",
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
