package policytest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"go4.org/netipx"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/felixlike/felixlike/cmd/felixctl/preview"
	"github.com/felixlike/felixlike/felixlike/control"
	"github.com/felixlike/felixlike/felixlike/policy/oracle"
	"github.com/felixlike/felixlike/model"
)

const (
	// alike is how many pods of a kind a written test has, so that there are packets between two of them.
	alike = 2
	// perLine bounds the sources of an expectation that is written.
	perLine = 4
)

const head = `# Written by felixctl test --from-cluster: one or two pods of each kind that the policies
# distinguish, with the labels that they name, and what the policies allow.
`

// Write returns a first test for the objects of a cluster: it holds with their policies.
func Write(ctx context.Context, o control.Objects) ([]byte, error) {
	t := &Test{APIVersion: APIVersion, Kind: Kind, Metadata: Metadata{"cluster"}}
	w := preview.NewWorld(o, failsafe(), nil)
	if w.Policies() == 0 && !o.Antrea.Isolation {
		return nil, errors.New("there is no policy to test")
	}
	if err := t.describe(w, o); err != nil {
		return nil, err
	}
	o.Nodes, o.Namespaces, o.Pods = nil, nil, nil
	reduced, err := t.world(o)
	if err != nil {
		return nil, err
	}
	reduced.Divide(nil)
	ends := reduced.Ends(reduced.All())
	var left []string
	for _, to := range ends {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		lines, err := expectations(reduced, ends, to)
		if err != nil {
			left = append(left, fmt.Sprintf("# Left out: packets to %s: %v.\n", to.Words(), err))
		}
		t.Spec.Expect = append(t.Spec.Expect, lines...)
	}
	text, err := yaml.Marshal(t)
	return []byte(head + strings.Join(left, "") + string(text)), err
}

// describe fills in the cluster.
func (t *Test) describe(w *preview.World, o control.Objects) error {
	c := &t.Spec.Cluster
	if o.Antrea.Isolation {
		c.Isolation = "namespaces"
	}
	for _, f := range w.Families() {
		c.Families = append(c.Families, "IPv"+f.String())
	}
	var prefixes netipx.IPSetBuilder
	for _, p := range preview.PodPrefixes(o.Nodes) {
		prefixes.AddPrefix(p)
	}
	for _, n := range o.Nodes {
		if w.NamesNodes() {
			node := Node{Name: n.Name, Labels: n.Labels}
			for _, a := range n.Status.Addresses {
				if a.Type == corev1.NodeInternalIP {
					node.Addresses = append(node.Addresses, a.Address)
				}
			}
			c.Nodes = append(c.Nodes, node)
		}
	}
	set, err := prefixes.IPSet()
	if err != nil {
		return err
	}
	for _, p := range set.Prefixes() {
		c.PodCIDRs = append(c.PodCIDRs, p.String())
	}
	used, named := map[string]bool{}, w.LabelNames()
	w.Divide(nil)
	for _, e := range w.Ends(w.Pods()) {
		pods := e.Pods()
		for _, p := range pods[:min(alike, len(pods))] {
			c.Pods = append(c.Pods, podOf(p, named, w.NamesNodes()))
			used[p.Namespace] = true
		}
	}
	for _, n := range o.Namespaces {
		if used[n.Name] {
			c.Namespaces = append(c.Namespaces, Namespace{n.Name, n.Labels})
		}
	}
	return nil
}

// podOf describes a pod by the labels that policies name.
func podOf(p *corev1.Pod, named []string, nodes bool) Pod {
	pod := Pod{Name: p.Namespace + "/" + p.Name, Labels: map[string]string{}}
	if nodes {
		pod.Node = p.Spec.NodeName
	}
	for _, name := range named {
		if value, has := p.Labels[name]; has {
			pod.Labels[name] = value
		}
	}
	for _, a := range p.Status.PodIPs {
		pod.Addresses = append(pod.Addresses, a.IP)
	}
	containers := slices.Clone(p.Spec.Containers)
	for _, c := range p.Spec.InitContainers {
		if c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways {
			containers = append(containers, c)
		}
	}
	for _, c := range containers {
		for _, port := range c.Ports {
			if port.Name != "" {
				pod.Ports = append(pod.Ports, Port{port.Name, port.ContainerPort, string(port.Protocol)})
			}
		}
	}
	return pod
}

// expectations returns what is expected of packets to an end.
func expectations(w *preview.World, ends []*preview.End, to *preview.End) ([]json.RawMessage, error) {
	type row struct{ from, ports string }
	var rows []row
	denies, packets := false, false
	for _, from := range ends {
		var allowed, denied []model.PortRange
		w.Judge(from, to, nil, nil, func(p preview.Packets) {
			if p.Egress.Why == oracle.OwnNode && p.Ingress.Why == oracle.OwnNode {
				return
			}
			if p.Ports.Protocol.IsICMP() {
				p.Ports.Protocol = model.ICMP
			}
			side := &denied
			if p.Allowed {
				side = &allowed
			}
			if !slices.Contains(*side, p.Ports) {
				*side = append(*side, p.Ports)
			}
		})
		packets, denies = packets || len(allowed)+len(denied) > 0, denies || len(denied) > 0
		if len(allowed) == 0 {
			continue
		}
		if slices.ContainsFunc(allowed, func(r model.PortRange) bool { return slices.Contains(denied, r) }) {
			return nil, fmt.Errorf("the verdicts of those from %s differ between IPv4 and IPv6", from.Words())
		}
		ports, err := portsForm(allowed, denied)
		if err != nil {
			return nil, err
		}
		rows = append(rows, row{from.Words(), ports})
	}
	switch {
	case !packets:
		return nil, nil
	case !denies:
		return []json.RawMessage{expectation("everything", to.Words(), "", "allow")}, nil
	}
	slices.SortStableFunc(rows, func(a, b row) int { return strings.Compare(a.ports, b.ports) })
	var all []json.RawMessage
	for len(rows) > 0 {
		first := rows[0]
		names := []string{first.from}
		for rows = rows[1:]; len(rows) > 0 && rows[0].ports == first.ports && len(names) < perLine && !strings.Contains(names[len(names)-1]+rows[0].from, " except "); rows = rows[1:] {
			names = append(names, rows[0].from)
		}
		all = append(all, expectation(strings.Join(names, " or "), to.Words(), first.ports, "allow"))
	}
	return append(all, expectation("everything else", to.Words(), "", "deny")), nil
}

// expectation returns an expectation as YAML without quotes has it.
func expectation(from, to, ports, verdict string) json.RawMessage {
	text := from + " -> " + to
	if ports != "" {
		text += " " + ports
	}
	raw, _ := json.Marshal(map[string]string{text: verdict}) // a map of texts has a form
	return raw
}

// portsForm writes the allowed ports as an expectation does.
func portsForm(allowed, denied []model.PortRange) (string, error) {
	if len(denied) == 0 {
		return "", nil
	}
	in, out := words(allowed), words(denied)
	switch {
	case slices.Contains(in, "") || slices.Contains(out, ""):
		return "", errors.New("a rule names a code of ICMP, which expectations cannot")
	case len(out) < len(in):
		return "all but " + strings.Join(out, ","), nil
	}
	return strings.Join(in, ","), nil
}

// words writes ranges, neighbours as one.
func words(ranges []model.PortRange) (all []string) {
	for _, r := range preview.Merged(ranges) {
		first, last, lowest := int(r.First), int(r.Last), 1
		if r.Protocol.IsICMP() {
			if first%256 != 0 || last%256 != 255 {
				return []string{""}
			}
			first, last, lowest = first/256, last/256, 0
		}
		switch {
		case first == lowest && r.Last == 65535:
			all = append(all, r.Protocol.String())
		case first == last:
			all = append(all, fmt.Sprintf("%d/%s", first, r.Protocol))
		default:
			all = append(all, fmt.Sprintf("%d-%d/%s", first, last, r.Protocol))
		}
	}
	return all
}
