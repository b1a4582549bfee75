package kubelab

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// Config configures a cluster. The zero value is two nodes with IPv4 and
// IPv6, kube-proxy in its iptables mode, and no CNI.
type Config struct {
	// Nodes is the number of nodes, at most three; the third is in
	// a separate subnet.
	Nodes int
	// Proxy is kube-proxy's mode: iptables, nftables or none.
	Proxy string
	// CNI is "none", or "bridge" for kubelab's own.
	CNI string
	// APIServerFlags are more flags of the API server.
	APIServerFlags []string
}

// addresses are the nodes that kubelab can have, as its NODES takes them.
func (c Config) nodes() []string {
	all := []string{"n1=172.30.1.11", "n2=172.30.1.12", "n3=172.30.2.13"}
	if c.Nodes == 0 {
		return all[:2]
	}
	return all[:c.Nodes]
}

func (c Config) environ() []string {
	proxy, cni := c.Proxy, c.CNI
	if proxy == "" {
		proxy = "iptables"
	}
	if cni == "" {
		cni = "none"
	}
	return []string{
		"NODES=" + strings.Join(c.nodes(), " "), "PROXY=" + proxy, "CNI=" + cni,
		"APISERVER_FLAGS=" + strings.Join(c.APIServerFlags, " "),
	}
}

// Cluster is a cluster that is up.
type Cluster struct {
	kit     *Kit
	config  Config
	release func()
}

// Up brings a cluster up. It waits for another process's cluster to end, and removes
// one whose owner is gone.
func (k *Kit) Up(ctx context.Context, config Config) (*Cluster, error) {
	release, err := lock(ctx, filepath.Join(k.work, "cluster.lock"))
	if err != nil {
		return nil, err
	}
	c := &Cluster{kit: k, config: config, release: release}
	if err := errors.Join(c.clear(), os.WriteFile(k.owner(), fmt.Appendf(nil, "%d %s\n", os.Getpid(), k.dir), 0o600)); err != nil {
		return nil, errors.Join(err, c.Down())
	}
	if _, err := k.script(ctx, config.environ(), "up.sh"); err != nil {
		return nil, errors.Join(err, c.Down())
	}
	return c, nil
}

// Down takes the cluster down. The logs of its daemons are kept in the work
// folder's log-last.
func (c *Cluster) Down() error {
	defer c.release()
	return c.clear()
}

func (c *Cluster) clear() error {
	// Not bounded by a test's context: a running cluster has to go down.
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	// Three nodes in any case: down.sh ends the existing ones.
	environ := append(Config{Nodes: 3}.environ(), "KEEP_LOGS=1")
	if _, err := c.kit.script(ctx, environ, "down.sh"); err != nil {
		return fmt.Errorf("take the cluster down: %w", err)
	}
	return os.RemoveAll(c.kit.owner())
}

// owner is the file with the owner of the cluster, and the command to take it down:
// test/scripts/sweep does so when the owner is gone.
func (k *Kit) owner() string { return filepath.Join(k.work, "owner") }

// Kit returns the kit that the cluster is of.
func (c *Cluster) Kit() *Kit { return c.kit }

// Nodes returns the names of the nodes.
func (c *Cluster) Nodes() []string {
	var names []string
	for _, n := range c.config.nodes() {
		name, _, _ := strings.Cut(n, "=")
		names = append(names, name)
	}
	return names
}

// Log returns the path of a daemon's log: "kube-apiserver", "n1-kubelet".
func (c *Cluster) Log(name string) string {
	return filepath.Join(c.kit.work, "run", "log", name+".log")
}

// Kubeconfig returns the path of the administrator's kubeconfig. Its server is
// reached from the namespace ControlPlane.
func (c *Cluster) Kubeconfig() string {
	return filepath.Join(c.kit.work, "run", "pki", "admin.kubeconfig")
}

// ControlPlane is the network namespace of the control plane. It is outside the
// cluster: it routes between the nodes and has no pods.
const ControlPlane = "kt-cp"

// Namespace returns the name of a node's network namespace.
func Namespace(node string) string { return "kt-" + node }

// Exec runs a shell script on a node, with the node's files, processes and network, and
// returns its output.
func (c *Cluster) Exec(ctx context.Context, node, script string) (string, error) {
	return c.kit.script(ctx, c.config.environ(), "node.sh", "exec", node, "sh", "-c", script)
}

// Path returns where a file of a node is for this process: a socket can be
// connected to there.
func (c *Cluster) Path(node, file string) (string, error) {
	outer, err := os.ReadFile(filepath.Join(c.kit.work, "run", "pid", "node-"+node))
	if err != nil {
		return "", fmt.Errorf("find node %s: %w", node, err)
	}
	// The recorded process waits for the node's init, its only child.
	pid := strings.TrimSpace(string(outer))
	children, err := os.ReadFile(filepath.Join("/proc", pid, "task", pid, "children"))
	if err != nil {
		return "", fmt.Errorf("find node %s: %w", node, err)
	}
	return filepath.Join("/proc", strings.TrimSpace(string(children)), "root", file), nil
}

// Import loads an image archive into a node's containerd.
func (c *Cluster) Import(ctx context.Context, node, archive string) error {
	_, err := c.kit.script(ctx, c.config.environ(), "node.sh", "exec", node, c.kit.Bin("ctr"), "-n", "k8s.io", "images", "import", archive)
	if err != nil {
		return fmt.Errorf("import %s into %s: %w", filepath.Base(archive), node, err)
	}
	return nil
}

// Kubectl runs kubectl as the cluster's administrator and returns its output.
func (c *Cluster) Kubectl(ctx context.Context, args ...string) (string, error) {
	return c.kubectl(ctx, "", args...)
}

// Apply applies manifests.
func (c *Cluster) Apply(ctx context.Context, manifests string) error {
	_, err := c.kubectl(ctx, manifests, "apply", "-f", "-")
	return err
}

func (c *Cluster) kubectl(ctx context.Context, stdin string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "ip", append([]string{"netns", "exec", ControlPlane, c.kit.Bin("kubectl"), "--kubeconfig", c.Kubeconfig()}, args...)...)
	cmd.Stdin = strings.NewReader(stdin)
	var out strings.Builder
	if err := run(cmd, &out); err != nil {
		return out.String(), fmt.Errorf("kubectl %s: %w", strings.Join(args, " "), err)
	}
	return out.String(), nil
}

// Smoke tests the network: pods of both nodes, Services, logs. It returns what it has tried.
func (c *Cluster) Smoke(ctx context.Context) (string, error) {
	return c.kit.script(ctx, c.config.environ(), "smoke.sh")
}

// StartDNS starts a DNS server in the cluster, a pod a node, as the Service that pods ask. The network must be there.
func (c *Cluster) StartDNS(ctx context.Context) error {
	_, err := c.kit.script(ctx, c.config.environ(), "dns.sh", "start")
	return err
}

// StopDNS removes what StartDNS made.
func (c *Cluster) StopDNS(ctx context.Context) error {
	_, err := c.kit.script(ctx, c.config.environ(), "dns.sh", "stop")
	return err
}
