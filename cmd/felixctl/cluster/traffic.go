package cluster

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"

	"github.com/felixlike/felixlike/cmd/felixctl/trafficprobe"
	"github.com/felixlike/felixlike/felixlike/report"
	"github.com/felixlike/felixlike/internal/terminal"
)

// Bounds of the steps of a traffic check.
const (
	podsReady = 2 * time.Minute
	sendTime  = 2 * time.Minute
	cleanTime = 90 * time.Second
)

// Names of paths, in the order of the table.
const (
	sameNode  = "same node"
	crossNode = "cross node"
	service   = "Service"
	nodePort  = "NodePort"
	dns       = "DNS"
	outside   = "outside"
	denied    = "denied"
)

// trafficPath is a path of packets from the client of a node, with its result.
type trafficPath struct {
	Path string `json:"path"`
	// From is the node of the client. To is the node of the server if only one can answer.
	From    string `json:"from"`
	To      string `json:"to,omitempty"`
	Address string `json:"address"`
	// Want and Got are whether the path is open.
	Want bool `json:"want"`
	Got  bool `json:"got"`
	// Detail is who answered, or why nobody did.
	Detail string `json:"detail"`
	OK     bool   `json:"ok"`
	// Absent: the cluster has nothing that could answer. Then the path is no failure.
	Absent bool `json:"absent,omitempty"`
}

// traffic is one traffic check. All that it makes is in a namespace of its own.
type traffic struct {
	target
	// image is that of the agents.
	image string
	// external is the address outside of the cluster.
	external string
	agents   []agent
}

// checkTraffic makes the pods, tries all paths, prints them and removes what it has made,
// also after an interrupt.
func (t target) checkTraffic(ctx context.Context, output terminal.Output, external string, out, progress io.Writer) (err error) {
	c, err := newTraffic(ctx, t, external)
	if err != nil {
		return err
	}
	defer func() {
		left := c.clean(context.WithoutCancel(ctx))
		if left != nil && errors.Is(err, report.ErrFaults) {
			err = nil // the table shows it; leftover objects are the error now
		}
		err = errors.Join(err, left)
	}()
	stop := terminal.Progress(progress, terminal.Doing("starting pods on "+strconv.Itoa(len(c.agents))+" nodes"))
	pods, err := c.start(ctx)
	stop()
	if err != nil {
		return err
	}
	paths, err := c.paths(ctx, pods)
	if err != nil {
		return err
	}
	stop = terminal.Progress(progress, terminal.Doing("trying "+strconv.Itoa(len(paths))+" paths"))
	err = c.send(ctx, paths)
	stop()
	if err != nil {
		return err
	}
	c.noteAbsentDNS(ctx, paths)
	if err := output.Print(out, paths, func() error { return printPaths(out, paths) }); err != nil {
		return err
	}
	for _, p := range paths {
		if !p.OK {
			return report.ErrFaults
		}
	}
	return nil
}

// newTraffic finds out what a check needs to know of the cluster.
func newTraffic(ctx context.Context, t target, external string) (*traffic, error) {
	agents, err := t.agents(ctx)
	if err != nil {
		return nil, err
	}
	for _, a := range agents {
		if a.Fault != "" {
			return nil, fmt.Errorf("node %s: %s", a.Node, a.Fault)
		}
	}
	var of corev1.Pod
	if err := t.get(ctx, &of, "pod", agents[0].Pod); err != nil {
		return nil, err
	}
	c := &traffic{target: t, external: external, agents: agents}
	for _, one := range of.Spec.Containers {
		if one.Name == container {
			c.image = one.Image
		}
	}
	if c.external == "" {
		// It is not a pod, and every cluster has one.
		if c.external, err = t.apiServer(ctx); err != nil {
			return nil, err
		}
	}
	c.namespace = trafficNamespace(time.Now())
	return c, nil
}

// start makes the namespace, pods, Service and policy, and returns the pods once they are ready.
func (c *traffic) start(ctx context.Context) (map[string]corev1.Pod, error) {
	create := c.kubectl(ctx, "create", "-f", "-")
	text, err := json.Marshal(c.objects())
	if err != nil {
		return nil, err
	}
	create.Stdin = bytes.NewReader(text)
	if out, err := create.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("make the pods of the check: %w: %s", err, bytes.TrimSpace(out))
	}
	ready, cancel := context.WithTimeout(ctx, podsReady+nodeTimeout)
	defer cancel()
	if out, err := c.kubectl(ready, "wait", "--for=condition=Ready", "pod", "--all", "--timeout="+podsReady.String()).CombinedOutput(); err != nil {
		return nil, errors.Join(fmt.Errorf("the pods of the check are not ready: %w: %s", err, bytes.TrimSpace(out)), c.notReady(ctx))
	}
	var list corev1.PodList
	if err := c.get(ctx, &list, "pods"); err != nil {
		return nil, err
	}
	pods := map[string]corev1.Pod{}
	for _, p := range list.Items {
		pods[p.Name] = p
	}
	return pods, nil
}

// notReady returns the reasons why pods of the check are not ready.
func (c *traffic) notReady(ctx context.Context) error {
	var list corev1.PodList
	if err := c.get(ctx, &list, "pods"); err != nil {
		return err
	}
	var all []error
	for i := range list.Items {
		p := &list.Items[i]
		for _, s := range p.Status.ContainerStatuses {
			if w := s.State.Waiting; !s.Ready && w != nil {
				all = append(all, fmt.Errorf("node %s: %s %s", p.Spec.NodeName, w.Reason, w.Message))
			}
		}
	}
	return errors.Join(all...)
}

// paths lists the paths from each node. The other node of a path is the next one, so their
// number grows as that of the nodes.
func (c *traffic) paths(ctx context.Context, pods map[string]corev1.Pod) ([]trafficPath, error) {
	var s corev1.Service
	if err := c.get(ctx, &s, "service", serverName); err != nil {
		return nil, err
	}
	var nodes corev1.NodeList
	if err := c.get(ctx, &nodes, "nodes"); err != nil {
		return nil, err
	}
	addresses := map[string][]string{}
	for _, n := range nodes.Items {
		for _, a := range n.Status.Addresses {
			if a.Type == corev1.NodeInternalIP {
				addresses[n.Name] = append(addresses[n.Name], a.Address)
			}
		}
	}
	var all []trafficPath
	for i, a := range c.agents {
		add := func(name, to string, want bool, hosts []string, port int32) {
			for _, host := range hosts {
				all = append(all, trafficPath{Path: name, From: a.Node, To: to, Want: want, Address: net.JoinHostPort(host, strconv.Itoa(int(port)))})
			}
		}
		here := podAddresses(pods[serverOf(i)])
		add(sameNode, a.Node, true, here, openPort)
		next := (i + 1) % len(c.agents)
		there, other := podAddresses(pods[serverOf(next)]), c.agents[next].Node
		if next != i {
			add(crossNode, other, true, there, openPort)
		}
		add(service, "", true, s.Spec.ClusterIPs, servicePort)
		add(nodePort, "", true, addresses[a.Node], s.Spec.Ports[0].NodePort)
		all = append(all,
			trafficPath{Path: dns, From: a.Node, Want: true, Address: serverName + "." + c.namespace + ".svc"},
			trafficPath{Path: outside, From: a.Node, Want: true, Address: c.external})
		add(denied, a.Node, false, here, closedPort)
		if next != i {
			add(denied, other, false, there, closedPort)
		}
	}
	return all, nil
}

func podAddresses(p corev1.Pod) []string {
	var all []string
	for _, a := range p.Status.PodIPs {
		all = append(all, a.IP)
	}
	return all
}

// send tries the paths in the clients' pods, and fills in the results.
func (c *traffic) send(ctx context.Context, paths []trafficPath) error {
	ctx, cancel := context.WithTimeout(ctx, sendTime)
	defer cancel()
	var g errgroup.Group
	g.SetLimit(atOnce)
	for i, a := range c.agents {
		g.Go(func() error {
			var from []*trafficPath
			var tries []trafficprobe.Path
			for j := range paths {
				if p := &paths[j]; p.From == a.Node {
					from = append(from, p)
					tries = append(tries, trafficprobe.Path{Open: p.Want, Address: p.Address, Lookup: p.Path == dns, Silent: p.Path == outside})
				}
			}
			arg, err := json.Marshal(tries)
			if err != nil {
				return err
			}
			send := []string{"exec", clientOf(i), "--", "felixctl", trafficprobe.CommandName, "send", string(arg)}
			out, err := c.output(ctx, send...)
			if err == nil && len(out) > 0 && !whole(out) {
				out, err = c.output(ctx, send...) // kubectl can lose the end of an answer
			}
			var results []trafficprobe.Result
			if err == nil {
				err = json.Unmarshal(out, &results)
			}
			if err == nil && len(results) != len(from) {
				err = fmt.Errorf("%d results for %d paths", len(results), len(from))
			}
			if err != nil {
				return fmt.Errorf("node %s: %w", a.Node, err)
			}
			for j, r := range results {
				from[j].Got, from[j].Detail, from[j].OK = r.Open, r.Detail, r.Open == from[j].Want
			}
			return nil
		})
	}
	return g.Wait()
}

// dnsPort is the port by which a Service is recognised as the cluster's DNS.
const dnsPort = 53

// noteAbsentDNS marks failed DNS paths if the cluster has no DNS at all. If Services cannot be listed, the paths stay failed.
func (c *traffic) noteAbsentDNS(ctx context.Context, paths []trafficPath) {
	failed := func(p trafficPath) bool { return p.Path == dns && !p.OK }
	if !slices.ContainsFunc(paths, failed) {
		return
	}
	var services corev1.ServiceList
	if err := c.get(ctx, &services, "services", "--all-namespaces"); err != nil {
		return
	}
	for _, s := range services.Items {
		if slices.ContainsFunc(s.Spec.Ports, func(p corev1.ServicePort) bool { return p.Port == dnsPort }) {
			return
		}
	}
	for i := range paths {
		if p := &paths[i]; failed(*p) {
			p.OK, p.Absent = true, true
			p.Detail = "this cluster has no DNS: no Service has port 53"
		}
	}
}

// clean removes the namespace and all that is in it.
func (c *traffic) clean(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, cleanTime)
	defer cancel()
	remove := c.kubectl(ctx, "delete", "namespace", c.namespace, "--ignore-not-found", "--timeout="+nodeTimeout.String())
	remove.SysProcAttr = apart() // another interrupt of the terminal must not end it
	if out, err := remove.CombinedOutput(); err != nil {
		return fmt.Errorf("remove the check's namespace: %w: %s; delete it by: kubectl delete namespace %s", err, bytes.TrimSpace(out), c.namespace)
	}
	return nil
}

// printPaths prints the paths, the unexpected ones first.
func printPaths(w io.Writer, paths []trafficPath) error {
	style := terminal.StyleFor(w)
	table := terminal.NewTable(style, "RESULT", "PATH", "FROM", "TO", "ADDRESS", "WANT", "GOT", "DETAIL")
	good, absent := 0, 0
	for _, bad := range []bool{true, false} {
		for _, p := range paths {
			if p.OK == bad {
				continue
			}
			result, to := style.Good("ok"), p.To
			switch {
			case bad:
				result = style.Bad("WRONG")
			case p.Absent:
				result = style.Faint("absent")
				absent++
			default:
				good++
			}
			if to == "" {
				to = "-"
			}
			table.Row(result, p.Path, p.From, to, p.Address, openness(p.Want), openness(p.Got), p.Detail)
		}
	}
	summary := fmt.Sprintf("%d paths, %d as expected", len(paths), good)
	if absent > 0 {
		summary += fmt.Sprintf(", %d not there: the cluster has no DNS", absent)
	}
	_, err := fmt.Fprintf(w, "%s\n\n%s\n", table, summary)
	return err
}

func openness(open bool) string {
	if open {
		return "open"
	}
	return "closed"
}
