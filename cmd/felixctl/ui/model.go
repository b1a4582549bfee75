package ui

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/felixlike/felixlike/cmd/felixctl/labs"
	"github.com/felixlike/felixlike/cmd/felixctl/preview"
	"github.com/felixlike/felixlike/felixlike/control"
	"github.com/felixlike/felixlike/felixlike/report"
	"github.com/felixlike/felixlike/model"
)

// Ages of a snapshot. Pages show one that is no older than fresh, or than rest times the time that it took to read: in a large cluster that
// is a process of kubectl for each node. Objects of an unchanged revision are read again after stale, because the addresses of pods change
// without a revision.
const (
	fresh = 5 * time.Second
	rest  = 4
	stale = time.Minute
)

// node is a node of the cluster with the answer of its agent.
type node struct {
	data
	Name string
	// Fault is why there is no answer.
	Fault string
	// Skew says by how much its clock is wrong, if it is.
	Skew string
}

// maxSkew is a difference of clocks that needs no word.
const maxSkew = 5 * time.Second

// compare notes the skew of the node's clock, whose time was read between two times of this machine's.
func (n *node) compare(from, to time.Time) {
	switch {
	case n.Now.IsZero(): // it does not say
		n.Now = to
	case n.Now.Before(from.Add(-maxSkew)):
		n.Skew = fmt.Sprintf("its clock is %s behind this machine's: times of its packets and rules are by its clock", from.Sub(n.Now).Round(time.Second))
	case n.Now.After(to.Add(maxSkew)):
		n.Skew = fmt.Sprintf("its clock is %s ahead of this machine's: times of its packets and rules are by its clock", n.Now.Sub(to).Round(time.Second))
	}
}

// noAnswer is the state of a node with a Fault.
const noAnswer = "NO ANSWER"

// State has the word that felixctl status prints.
func (n *node) State() string {
	if n.Fault != "" {
		return noAnswer
	}
	return report.State(n.Status)
}

// Reasons are why the node is not ready, or not known in full.
func (n *node) Reasons() []string {
	if n.Fault != "" {
		return []string{n.Fault}
	}
	all := append(report.Faults(n.Status), n.Faults...)
	if n.Skew != "" {
		all = append(all, n.Skew)
	}
	return all
}

// snapshot is what the agents have answered at one time.
type snapshot struct {
	At    time.Time
	took  time.Duration
	Nodes []*node
	*cluster
	// Fault is why the objects of the cluster are missing.
	Fault string
}

// ObjectsRead is when the objects were read. They may be those of an earlier snapshot.
func (c *cluster) ObjectsRead() time.Time { return c.read }

// cluster has the objects of one agent, with all that is computed from them.
type cluster struct {
	Objects control.Objects
	node    *node
	raw     []byte
	read    time.Time
	once    sync.Once
	matrix  *matrix
}

// patience is how long a page waits for a new snapshot before it shows the last one: one node may cost a minute.
const patience = 2 * time.Second

// source reads snapshots, one at a time.
type source struct {
	access Access
	// life ends the readings.
	life context.Context //nolint:containedctx // a reading outlives the request that began it
	mu   sync.Mutex
	last *snapshot
	// reading is closed when the reading under way has ended, with its error in err; nil if there is none.
	reading chan struct{}
	err     error
}

// get returns a snapshot that is fresh, or the last one if a new one does not come soon.
func (s *source) get(ctx context.Context) (*snapshot, error) {
	s.mu.Lock()
	last, reading := s.last, s.reading
	if last != nil && time.Since(last.At) < max(fresh, rest*last.took) {
		s.mu.Unlock()
		return last, nil
	}
	if reading == nil {
		reading = make(chan struct{})
		s.reading = reading
		go s.refresh(last, reading)
	}
	s.mu.Unlock()
	var late <-chan time.Time
	if last != nil {
		late = time.After(patience)
	}
	select {
	case <-reading:
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.last, s.err
	case <-late:
		return last, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// late says that a snapshot is old, and why, or nothing.
func (s *source) late(now *snapshot) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	age, why := time.Since(now.At), "the agents are still being asked"
	switch {
	case s.err != nil:
		why = s.err.Error()
	case age < 2*max(fresh, rest*now.took):
		return ""
	}
	return fmt.Sprintf("OLD: this is the state of %s, %s ago. %s", now.At.Format(time.DateTime), age.Round(time.Second), why)
}

// refresh reads a snapshot.
func (s *source) refresh(last *snapshot, reading chan struct{}) {
	begin := time.Now()
	next, err := s.read(s.life, last)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.reading, s.err = nil, err; err == nil {
		next.took = time.Since(begin)
		s.last = next
	}
	close(reading)
}

func (s *source) read(ctx context.Context, last *snapshot) (*snapshot, error) {
	begin := time.Now()
	answers, err := s.access.Ask(ctx, nil, nil, CommandName, "data")
	if err != nil {
		return nil, err
	}
	next, end := &snapshot{cluster: &cluster{}}, time.Now()
	for _, a := range answers {
		n := &node{Name: a.Node}
		switch err := a.decode(&n.data); {
		case err != nil:
			n.data, n.Fault = data{}, err.Error()
		case a.Node == thisNode || a.Node == labs.NodeFolder(n.Status.Node):
			n.Name = n.Status.Node
		case a.Node != n.Status.Node:
			n.data, n.Fault = data{}, fmt.Sprintf("the agent says that it is %q", n.Status.Node)
		}
		n.compare(begin, end)
		next.Nodes = append(next.Nodes, n)
	}
	// Faulty nodes first, as in felixctl status.
	slices.SortStableFunc(next.Nodes, func(a, b *node) int { return cmp.Compare(rank(a), rank(b)) })
	if next.cluster, err = s.objects(ctx, next.Nodes, last); err != nil {
		next.Fault, next.cluster = err.Error(), &cluster{}
	}
	next.At = time.Now()
	return next, nil
}

func rank(n *node) int {
	return slices.Index([]string{noAnswer, report.StateDegraded, report.StateChanging, report.StateReady}, n.State())
}

// objects returns those of a node in the best state, of the one that they were read from last if that is one of these, or those that are known
// if they are the same. Revisions of two agents cannot be compared: each counts its own.
func (s *source) objects(ctx context.Context, nodes []*node, old *snapshot) (*cluster, error) {
	var of *node
	for _, n := range nodes {
		better := of == nil || rank(n) > rank(of) || rank(n) == rank(of) && old != nil && old.node != nil && n.Name == old.node.Name
		if n.Fault == "" && n.Status.InSync && better {
			of = n
		}
	}
	if of == nil {
		return nil, fmt.Errorf("no agent has read the objects of the cluster")
	}
	if old != nil && old.node != nil && old.node.Name == of.Name && old.node.Status.PID == of.Status.PID &&
		old.node.Status.Observed == of.Status.Observed && time.Since(old.cluster.read) < stale {
		return old.cluster, nil
	}
	answers, err := s.access.Ask(ctx, []string{of.Name}, nil, CommandName, "data", "--objects")
	if err != nil {
		return nil, err
	}
	c := &cluster{read: time.Now(), node: of}
	for _, a := range answers {
		var d data
		if err := a.decode(&d); err != nil {
			return nil, fmt.Errorf("objects of %s: %w", of.Name, err)
		}
		c.raw, c.node.Failsafe = d.Objects, d.Failsafe
	}
	if old != nil && bytes.Equal(old.raw, c.raw) {
		c.Objects, c.matrix = old.Objects, old.verdicts()
		c.once.Do(func() {}) // it is computed
		return c, nil
	}
	if err := json.Unmarshal(c.raw, &c.Objects); err != nil {
		return nil, fmt.Errorf("objects of %s: %w", of.Name, err)
	}
	if !c.Objects.InSync {
		return nil, fmt.Errorf("objects of %s: its agent has not read them all", of.Name)
	}
	if hasNull(reflect.ValueOf(c.Objects)) {
		return nil, fmt.Errorf("objects of %s: one of them is null", of.Name)
	}
	return c, nil
}

// hasNull reports whether a list or map in the value has a null in it, which no agent sends and no evaluation expects.
func hasNull(v reflect.Value) bool {
	null := func(one reflect.Value) bool { return one.Kind() == reflect.Pointer && one.IsNil() || hasNull(one) }
	switch v.Kind() {
	case reflect.Pointer:
		return !v.IsNil() && hasNull(v.Elem())
	case reflect.Struct:
		for field, one := range v.Fields() {
			if field.IsExported() && hasNull(one) {
				return true
			}
		}
	case reflect.Slice:
		for i := range v.Len() {
			if null(v.Index(i)) {
				return true
			}
		}
	case reflect.Map:
		for _, one := range v.Seq2() {
			if null(one) {
				return true
			}
		}
	}
	return false
}

// reach answers who may reach whom.
func (c *cluster) reach(ctx context.Context, q preview.Question) (*preview.Reach, error) {
	if c.node != nil {
		q.Failsafe = c.node.Failsafe
	}
	return preview.ReachOf(ctx, c.Objects, q)
}

// pod returns a pod, or nil.
func (c *cluster) pod(namespace, name string) *corev1.Pod {
	at := slices.IndexFunc(c.Objects.Pods, func(p *corev1.Pod) bool { return p.Namespace == namespace && p.Name == name })
	if at < 0 {
		return nil
	}
	return c.Objects.Pods[at]
}

// drops adds up the denied packets of all nodes in the last time, which each node has by its own clock.
// addresses returns addresses of two ends of one family: of pods, node:NAME, or addresses.
func (c *cluster) addresses(from, to, family string) (source, destination netip.Addr, err error) {
	for _, f := range model.Families() {
		if family != "" && family != f.String() {
			continue
		}
		source, destination = c.address(from, f), c.address(to, f)
		if source.IsValid() && destination.IsValid() {
			return source, destination, nil
		}
	}
	return source, destination, fmt.Errorf("%s and %s are no pods, nodes or addresses with addresses of one family", from, to)
}

// address returns the address of an end in a family; it is not valid if there is none.
func (c *cluster) address(end string, f model.Family) (a netip.Addr) {
	var all []string
	if node, is := strings.CutPrefix(end, "node:"); is {
		for _, n := range c.Objects.Nodes {
			for _, at := range n.Status.Addresses {
				if n.Name == node && at.Type == corev1.NodeInternalIP {
					all = append(all, at.Address)
				}
			}
		}
	} else if namespace, name, is := strings.Cut(end, "/"); is {
		if p := c.pod(namespace, name); p != nil && hasAddress(p) {
			for _, ip := range p.Status.PodIPs {
				all = append(all, ip.IP)
			}
		}
	} else {
		all = append(all, strings.TrimPrefix(end, "ip:"))
	}
	for _, text := range all {
		if one, err := netip.ParseAddr(text); err == nil && model.FamilyOf(one.Unmap()) == f {
			return one.Unmap()
		}
	}
	return a
}

func (s *snapshot) drops(f report.DropFilter, last time.Duration) *report.DropSums {
	var sums report.DropSums
	for _, n := range s.Nodes {
		sums.AddHistory(n.Drops, f, n.Now.Add(-last))
	}
	return &sums
}

// policies are the rules of all policies.
type policies struct {
	report.RuleSums
	// NoRules are the NetworkPolicies that isolate pods and allow nothing.
	NoRules []string
	// Faults are nodes whose counters are missing.
	Faults []string
}

// policies adds up the counters of all nodes.
func (s *snapshot) policies() (p policies) {
	var all []control.Hits
	for _, n := range s.Nodes {
		all = append(all, n.Hits)
		if n.Fault != "" || n.Hits.At.IsZero() {
			p.Faults = append(p.Faults, n.Name+": its counters are not known: "+strings.Join(n.Reasons(), "; "))
		}
	}
	if s.Fault != "" {
		p.Faults = append(p.Faults, "policies without rules are not known: "+s.Fault)
	}
	p.RuleSums = report.SumOfRules(all)
	for _, one := range s.Objects.Policies {
		if len(one.Spec.Ingress)+len(one.Spec.Egress) == 0 {
			p.NoRules = append(p.NoRules, one.Namespace+"/"+one.Name)
		}
	}
	return p
}

// closedPod is a pod that is closed on its node.
type closedPod struct{ Node, Pod, Reason string }

// health is the cluster in a line.
type health struct {
	State                    string
	Nodes, Ready             int
	Pods, Policies, Problems int
	Closed                   []closedPod
	// Minutes has the denied packets of each of the last 60 minutes, the present one last, which is not whole.
	Minutes []uint64
	// Silent counts nodes whose denied packets are not known.
	Silent int
}

// Rate is the denied packets a second, of the last whole minute.
func (h health) Rate() string { return fmt.Sprintf("%.1f", float64(h.Minutes[len(h.Minutes)-2])/60) }

func (s *snapshot) health() health {
	h := health{State: report.StateReady, Nodes: len(s.Nodes), Pods: len(s.Objects.Pods), Minutes: make([]uint64, 60)}
	h.Policies = len(s.Objects.Policies) + len(s.Objects.ClusterPolicies) + len(s.Objects.Antrea.All())
	switch {
	case len(s.Nodes) == 0:
		h.State = noAnswer
	case s.Fault != "":
		h.State = report.StateDegraded
	}
	problems := map[string]bool{}
	for _, n := range s.Nodes {
		if n.State() == report.StateReady {
			h.Ready++
		} else if h.State == report.StateReady || n.Fault != "" {
			h.State = n.State() // the worst ones come first
		}
		for _, e := range n.Status.Endpoints {
			if e.State == control.EndpointClosed {
				h.Closed = append(h.Closed, closedPod{n.Name, e.Namespace + "/" + e.Name, e.Reason})
			}
		}
		for _, p := range n.Status.Problems {
			problems[p.Error()] = true
		}
		if n.Fault != "" || n.Drops.From.IsZero() || n.Drops.Fault != "" {
			h.Silent++
		}
		for _, m := range n.Drops.Minutes {
			if ago := int(n.Now.Truncate(time.Minute).Sub(m.Begin) / time.Minute); ago >= 0 && ago < len(h.Minutes) {
				h.Minutes[len(h.Minutes)-1-ago] += deniedIn(m)
			}
		}
	}
	h.Problems = len(problems)
	return h
}

func deniedIn(m control.DropMinute) uint64 {
	n := m.NotShown
	for _, f := range m.Flows {
		n += f.Packets
	}
	return n
}

// problems lists the problems of objects, each once.
func (s *snapshot) problems() []string {
	var all []string
	for _, n := range s.Nodes {
		for _, p := range n.Status.Problems {
			all = append(all, p.Error())
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// endpoint returns what the pod's node says of it. Another node has nothing to say.
func (s *snapshot) endpoint(p *corev1.Pod) (control.Endpoint, bool) {
	for _, n := range s.Nodes {
		if n.Name != p.Spec.NodeName {
			continue
		}
		for _, e := range n.Status.Endpoints {
			if e.Namespace == p.Namespace && e.Name == p.Name {
				return e, true
			}
		}
	}
	return control.Endpoint{}, false
}

// nodesOf returns the nodes of pods and nodes that a text names, as far as there are any.
func (c *cluster) nodesOf(ends ...string) []string {
	var all []string
	for _, text := range ends {
		if name, is := strings.CutPrefix(text, "node:"); is {
			all = append(all, name)
		}
		namespace, name, _ := strings.Cut(text, "/")
		if p := c.pod(namespace, name); p != nil && p.Spec.NodeName != "" {
			all = append(all, p.Spec.NodeName)
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}
