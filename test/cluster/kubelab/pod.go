package kubelab

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/felixlike/felixlike/internal/namespace"
)

// Pods returns the pods of a namespace; the selector may be empty.
func (c *Cluster) Pods(ctx context.Context, ns, selector string) ([]corev1.Pod, error) {
	args := []string{"get", "pods", "-o", "json", "-n", ns}
	if selector != "" {
		args = append(args, "-l", selector)
	}
	var list corev1.PodList
	if err := c.get(ctx, &list, args...); err != nil {
		return nil, err
	}
	return list.Items, nil
}

// get decodes the JSON output of kubectl.
func (c *Cluster) get(ctx context.Context, into any, args ...string) error {
	out, err := c.Kubectl(ctx, args...)
	if err != nil {
		return err
	}
	if err := json.Unmarshal([]byte(out), into); err != nil {
		return fmt.Errorf("kubectl %s: %w", strings.Join(args, " "), err)
	}
	return nil
}

// Get decodes one object: Get(ctx, &node, "node", "n1").
func (c *Cluster) Get(ctx context.Context, into any, args ...string) error {
	return c.get(ctx, into, append([]string{"get", "-o", "json"}, args...)...)
}

// Open returns the network namespace of a running pod. The caller closes it.
func (c *Cluster) Open(pod *corev1.Pod) (*namespace.Namespace, error) {
	pid, err := processOf(string(pod.UID))
	if err != nil {
		return nil, fmt.Errorf("open the namespace of %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	return namespace.At(fmt.Sprintf("/proc/%s/ns/net", pid))
}

// processOf returns a process of the pod with this uid, by the name of its cgroup.
func processOf(uid string) (string, error) {
	files, err := filepath.Glob("/proc/[0-9]*/cgroup")
	if err != nil {
		return "", err
	}
	for _, file := range files {
		// A process that has ended meanwhile has no such file.
		if text, err := os.ReadFile(file); err == nil && bytes.Contains(text, []byte("/pod"+uid+"/")) {
			return filepath.Base(filepath.Dir(file)), nil
		}
	}
	return "", fmt.Errorf("no process of pod %s", uid)
}

// Addresses returns a pod's addresses.
func Addresses(pod *corev1.Pod) []netip.Addr {
	var all []netip.Addr
	for _, ip := range pod.Status.PodIPs {
		if a, err := netip.ParseAddr(ip.IP); err == nil {
			all = append(all, a)
		}
	}
	return all
}
