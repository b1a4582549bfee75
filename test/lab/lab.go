package lab

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"github.com/felixlike/felixlike/cmd/felixctl/labs"
	"github.com/felixlike/felixlike/felixlike/config"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/ovsfwd/ovsdaemon"
)

// Lab is a running cluster. Its methods may be called from any goroutine; one
// state change runs at a time.
type Lab struct {
	config Config
	dir    string
	record *record
	fabric *fabric

	mu    sync.Mutex
	state State
	nodes map[string]*Node
	pods  map[model.PodID]*Pod
}

// Available returns an error that names a lab's missing requirements on this machine.
func Available() error {
	if os.Geteuid() != 0 {
		return errors.New("a lab needs root: it makes network namespaces")
	}
	return ovsdaemon.Available()
}

// Up makes a lab without nodes. It first removes the remains of an earlier lab of the
// name, unless its process lives: that is ErrInUse.
func Up(ctx context.Context, config Config) (*Lab, error) {
	if err := Available(); err != nil {
		return nil, err
	}
	config, err := config.withDefaults()
	if err != nil {
		return nil, err
	}
	unlock, err := lockRoot(config.Root)
	if err != nil {
		return nil, err
	}
	defer unlock()
	dir := filepath.Join(config.Root, config.Name)
	old, err := readRecord(dir)
	switch {
	case err == nil && old.Owner.Alive():
		return nil, fmt.Errorf("lab %s: %w, %d (felixctl lab down --name %s removes it; --name gives another lab another name)", config.Name, ErrInUse, old.Owner.PID, config.Name)
	case err == nil:
		if err := old.undo(config.Root, dir); err != nil {
			return nil, err
		}
	case !errors.Is(err, fs.ErrNotExist):
		return nil, err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("lab %s: %w", config.Name, err)
	}
	l := &Lab{config: config, dir: dir, nodes: map[string]*Node{}, pods: map[model.PodID]*Pod{}}
	if l.record, err = newRecord(dir, config.Name); err != nil {
		return nil, err
	}
	if l.fabric, err = newFabric(l.record, l.config.Datapath); err != nil {
		return nil, errors.Join(err, l.record.undo(config.Root, dir))
	}
	return l, nil
}

// lockRoot keeps two processes from making a lab at the same moment.
func lockRoot(root string) (unlock func(), err error) {
	if err := os.MkdirAll(root, 0o755); err != nil {
		return nil, fmt.Errorf("lab folder: %w", err)
	}
	file, err := os.Open(root)
	if err != nil {
		return nil, fmt.Errorf("lab folder: %w", err)
	}
	if err := unix.Flock(int(file.Fd()), unix.LOCK_EX); err != nil {
		return nil, errors.Join(fmt.Errorf("lock %s: %w", root, err), file.Close())
	}
	return func() { file.Close() }, nil
}

// Name returns the lab's name.
func (l *Lab) Name() string { return l.config.Name }

// Root returns the folder that the lab's folder is in.
func (l *Lab) Root() string { return l.config.Root }

// Dir returns the lab's folder.
func (l *Lab) Dir() string { return l.dir }

// Manifests returns the directory that the agents watch.
func (l *Lab) Manifests() string { return filepath.Join(l.dir, "manifests") }

// Node returns a node by name, or nil.
func (l *Lab) Node(name string) *Node {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.nodes[name]
}

// Pod returns a pod, or nil.
func (l *Lab) Pod(id model.PodID) *Pod {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.pods[id]
}

// State returns the state that the lab was brought to last, completed.
func (l *Lab) State() State {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.state
}

// SetState brings the cluster from its present state to another, by their
// differences, and returns when all agents report it programmed. Labels and
// policies change in place. Pods with another address, node or ports, and
// nodes with other addresses, are made anew.
func (l *Lab) SetState(ctx context.Context, s State) error {
	ctx, cancel := context.WithTimeout(ctx, l.config.SyncTimeout)
	defer cancel()
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := s.complete(&l.state); err != nil {
		return err
	}
	if err := l.giveKeys(&s); err != nil {
		return err
	}
	p, err := newPlan(&s)
	if err != nil {
		return err
	}
	files, err := s.manifests()
	if err != nil {
		return err
	}
	l.state = s
	if err := l.removeLocked(ctx, p); err != nil {
		return err
	}
	if err := manifestsDir(l.Manifests()).write(files); err != nil {
		return err
	}
	before := len(l.nodes)
	if err := l.addNodesLocked(ctx, p); err != nil {
		return err
	}
	added, err := l.addPodsLocked(ctx, p)
	if err != nil {
		return err
	}
	if err := l.syncLocked(ctx); err != nil {
		return err
	}
	if len(l.nodes) > before {
		l.openTunnelsLocked(ctx)
	}
	if l.config.PipelineVariant == config.VariantOpenShift {
		return nil // pods may be closed to their nodes, and have no IPv6
	}
	return l.greetLocked(ctx, added)
}

// RestartAgent restarts a node's agent and returns when it has programmed everything.
func (l *Lab) RestartAgent(ctx context.Context, node string) error {
	ctx, cancel := context.WithTimeout(ctx, l.config.SyncTimeout)
	defer cancel()
	l.mu.Lock()
	defer l.mu.Unlock()
	n := l.nodes[node]
	if n == nil {
		return fmt.Errorf("no node %s, but %s", node, strings.Join(slices.Sorted(maps.Keys(l.nodes)), ", "))
	}
	// One that hangs is what a restart is for.
	if err := n.StopAgent(); err != nil && !errors.Is(err, errKilled) {
		return err
	}
	if err := n.StartAgent(); err != nil {
		return err
	}
	return l.syncLocked(ctx)
}

// removeLocked removes pods and nodes that are not in the plan as they are.
func (l *Lab) removeLocked(ctx context.Context, p *plan) error {
	keep := func(n *Node) bool {
		spec := p.nodes[n.Name()]
		return spec != nil && spec.equal(n.spec)
	}
	var errs []error
	for id, pod := range l.pods {
		if spec := p.pods[id]; spec != nil && spec.equal(pod.spec) && keep(pod.node) {
			continue
		}
		errs = append(errs, pod.stop(ctx, l.record))
		delete(l.pods, id)
	}
	for name, n := range l.nodes {
		if keep(n) {
			continue
		}
		errs = append(errs, l.fabric.disconnect(n.spec), n.stop())
		delete(l.nodes, name)
	}
	if len(l.nodes) < len(p.nodes) {
		errs = append(errs, l.fabric.forget())
	}
	errs = append(errs, l.fabric.setGateways(p.gateways()))
	return errors.Join(errs...)
}

func (l *Lab) addNodesLocked(ctx context.Context, p *plan) error {
	c := l.config
	command := agentCommand{
		Settings: Settings{
			Backend: c.Backend, Offload: c.Offload, TrafficMode: c.TrafficMode, Encryption: c.Encryption,
			NFTablesLayout: c.NFTablesLayout, SNAT: c.SNAT, ServiceProxy: c.ServiceProxy, Isolation: c.Isolation, PipelineVariant: c.PipelineVariant,
		},
		binary: c.Agent, datapath: c.Datapath, tunnel: c.Tunnel, logLevel: c.LogLevel, existing: c.ExistingConnections, verify: c.Verify,
		manifests: manifestsDir(l.Manifests()), serveCNI: c.ServeCNI, other: c.Other,
	}
	var mu sync.Mutex
	group, ctx := errgroup.WithContext(ctx)
	for name, spec := range p.nodes {
		if l.nodes[name] != nil {
			continue
		}
		group.Go(func() error {
			dir := labs.NodeDir(l.dir, name)
			// A node made anew starts with an empty database and log.
			if err := os.RemoveAll(dir); err != nil {
				return fmt.Errorf("node %s: %w", name, err)
			}
			n, err := newNode(ctx, l.record, l.fabric, spec, dir, command)
			if err != nil {
				return err
			}
			mu.Lock()
			l.nodes[name] = n
			mu.Unlock()
			if err := l.copyKey(n); err != nil {
				return err
			}
			if err := n.StartAgent(); err != nil {
				return err
			}
			// The agent makes the bridge that pods are attached to.
			return n.Sync(ctx)
		})
	}
	return group.Wait()
}

// addPodsLocked makes the pods that are missing, the nodes side by side.
func (l *Lab) addPodsLocked(ctx context.Context, p *plan) ([]*Pod, error) {
	byNode := map[string][]*podSpec{}
	for _, id := range slices.SortedFunc(maps.Keys(p.pods), model.PodID.Compare) {
		if spec := p.pods[id]; l.pods[id] == nil {
			byNode[spec.Node] = append(byNode[spec.Node], spec)
		}
	}
	var mu sync.Mutex
	var added []*Pod
	group, ctx := errgroup.WithContext(ctx)
	for node, specs := range byNode {
		group.Go(func() error {
			for _, spec := range specs {
				pod, err := newPod(ctx, l.record, l.nodes[node], spec)
				if err != nil {
					return err
				}
				mu.Lock()
				l.pods[spec.ID] = pod
				added = append(added, pod)
				mu.Unlock()
			}
			return nil
		})
	}
	return added, group.Wait()
}

// syncLocked waits until every agent has programmed the manifests and its pods.
func (l *Lab) syncLocked(ctx context.Context) error {
	pods := map[string][]model.PodID{}
	for id, pod := range l.pods {
		if !pod.spec.HostNetwork {
			pods[pod.node.Name()] = append(pods[pod.node.Name()], id)
		}
	}
	group, ctx := errgroup.WithContext(ctx)
	for name, n := range l.nodes {
		group.Go(func() error { return n.Sync(ctx, pods[name]...) })
	}
	return group.Wait()
}

// Sync waits until every agent has programmed the manifests as they are now.
func (l *Lab) Sync(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, l.config.SyncTimeout)
	defer cancel()
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.syncLocked(ctx)
}

// Down ends everything and removes all traces. It may be called again.
func (l *Lab) Down() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	var errs []error
	for _, pod := range l.pods {
		if !pod.spec.HostNetwork {
			errs = append(errs, pod.station.Close())
			pod.ns.Close()
		}
	}
	for _, n := range l.nodes {
		errs = append(errs, n.stop())
	}
	errs = append(errs, l.fabric.close(), l.record.undo(l.config.Root, l.dir))
	clear(l.pods)
	clear(l.nodes)
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("take lab %s down: %w", l.config.Name, err)
	}
	return nil
}
