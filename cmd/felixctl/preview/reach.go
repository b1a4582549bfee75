package preview

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/felixlike/felixlike/felixlike/control"
	"github.com/felixlike/felixlike/felixlike/policy/oracle"
	"github.com/felixlike/felixlike/internal/terminal"
	"github.com/felixlike/felixlike/model"
)

// Question asks which packets may pass.
type Question struct {
	From, To string
	// Port asks about one port only, or with an ICMP protocol about echo requests of both families. Protocol AnyProtocol: about all.
	Port model.PortRange
	// Failsafe are the ports that no policy closes for a node.
	Failsafe model.Failsafe
}

// ParsePort reads the Port of a Question: PORT/PROTOCOL, icmp, or nothing for all.
func ParsePort(text string) (model.PortRange, error) {
	switch text {
	case "":
		return model.PortRange{}, nil
	case "icmp":
		return model.PortRange{Protocol: model.ICMP}, nil
	}
	number, name, _ := strings.Cut(text, "/")
	n, err := strconv.ParseUint(number, 10, 16)
	protocol, unknown := model.ParseProtocol(strings.ToUpper(name))
	if err != nil || unknown != nil || n == 0 || protocol.IsICMP() {
		return model.PortRange{}, fmt.Errorf("port %q: want PORT/PROTOCOL (as in 80/tcp) or icmp; the protocols are tcp, udp and sctp", text)
	}
	return model.PortRange{Protocol: protocol, First: uint16(n), Last: uint16(n)}, nil
}

// ErrNoPolicy is the error of ReachOf for ends between which nothing is evaluated.
var ErrNoPolicy = errors.New("no policy applies between these ends: all packets pass")

// Reach is the answer: every packet of the question is in one of the Ways.
type Reach struct {
	// Node is the node of the agent that gave the objects.
	Node string `json:"node"`
	From string `json:"from"`
	To   string `json:"to"`
	// Objects is what the answer was computed from.
	Objects Evidence `json:"objects"`
	// NoAddress are pods of the question without an address: they are in no Way.
	NoAddress []string `json:"withoutAddress,omitempty"`
	Ways      []Way    `json:"ways"`
}

// Evidence identifies the objects: equal objects have an equal digest.
type Evidence struct {
	// Revision is the revision of the agent's datastore.
	Revision   uint64 `json:"revision"`
	Nodes      int    `json:"nodes"`
	Namespaces int    `json:"namespaces"`
	Pods       int    `json:"pods"`
	Policies   int    `json:"policies"`
	// SHA256 is of the objects as the agent has them, in JSON.
	SHA256 string `json:"sha256"`
}

// Way is packets with one verdict, for one reason: from each of From to each of To, except a pod and itself.
type Way struct {
	From []string `json:"from"`
	To   []string `json:"to"`
	// Families are "IPv4", "IPv6", and Ports as in Difference.
	Families []string `json:"families"`
	Ports    []string `json:"ports"`
	Verdict  string   `json:"verdict"`
	Because  string   `json:"because"`
}

// of returns the ends among the objects, and the pods without an address. A pod in its host's network is its node. An end that names pods or nodes and
// finds none is an error: "nothing passes" would be true, and mislead.
func (v *verdicts) of(text string, policies []anyPolicy) (all []*end, without []string, err error) {
	want, err := v.set(text)
	if err != nil {
		return nil, nil, err
	}
	var pods []*corev1.Pod
	for _, p := range v.objects.Pods {
		switch {
		case !want.has(&end{pods: []*corev1.Pod{p}}):
		case selectable(p):
			pods = append(pods, p)
		case p.Spec.HostNetwork: // as its node
		case p.Status.Phase != corev1.PodSucceeded && p.Status.Phase != corev1.PodFailed:
			without = append(without, podName(p))
		}
	}
	all = classes(pods, v.namespaces, policies, nil, v.blocks(policies))
	others := nodes(v.objects.Nodes, policies)
	for _, f := range v.families {
		others = append(others, outside(f, append(v.blocks(policies), want.prefixes...), v.taken())...)
	}
	for _, e := range others {
		if want.has(e) {
			all = append(all, e)
		}
	}
	if len(all) == 0 {
		return nil, nil, fmt.Errorf("%q: there is no such pod with an address, or node", text)
	}
	return all, without, nil
}

// ReachOf answers a question by the objects. If ctx ends before, it returns its error.
func ReachOf(ctx context.Context, o control.Objects, q Question) (*Reach, error) {
	all, without, err := reach(ctx, o, q)
	if err != nil {
		return nil, err
	}
	evidence, err := EvidenceOf(o)
	if err != nil {
		return nil, err
	}
	r := &Reach{Node: o.Node, From: q.From, To: q.To, Objects: evidence, NoAddress: without, Ways: []Way{}}
	// The outside is an end in each family.
	eitherFamily := func(a, b Difference) bool {
		return a.Becomes == b.Becomes && a.Because == b.Because && slices.Equal(a.From, b.From) && slices.Equal(a.To, b.To) && slices.Equal(a.Ports, b.Ports)
	}
	for _, d := range joined(Grouped(all), eitherFamily, func(a *Difference, b Difference) { a.Families = union(a.Families, b.Families) }) {
		r.Ways = append(r.Ways, Way{d.From, d.To, d.Families, d.Ports, d.Becomes, d.Because})
	}
	return r, nil
}

// reach returns the packets of a question, by ends, verdict and reason, and the pods without an address.
func reach(ctx context.Context, o control.Objects, q Question) (all []Difference, without []string, err error) {
	policies, v := policiesOf(o), newVerdicts(o)
	v.failsafe = q.Failsafe
	from, without, err := v.of(q.From, policies)
	if err != nil {
		return nil, nil, fmt.Errorf("--from %w", err)
	}
	to, more, err := v.of(q.To, policies)
	if err != nil {
		return nil, nil, fmt.Errorf("--to %w", err)
	}
	for i, source := range from {
		if err := ctx.Err(); err != nil {
			return nil, nil, fmt.Errorf("evaluate packets: %d of %d kinds of sources are done: %w", i, len(from), context.Cause(ctx))
		}
		for _, destination := range to {
			for _, pair := range apart(source, destination) {
				all = append(all, v.eachFamily(func(f model.Family) []Difference { return v.passes(pair[0], pair[1], f, q.Port) })...)
			}
		}
	}
	if len(all) == 0 {
		return nil, nil, ErrNoPolicy
	}
	slices.Sort(without)
	return all, slices.Compact(append(without, more...)), nil
}

// apart returns the pairs of ends whose packets are evaluated alike: pods on a node, and others, if the other end is that node.
func apart(from, to *end) (pairs [][2]*end) {
	switch {
	case from.node != nil && len(to.pods) > 0:
		for _, part := range to.byNode(from.node) {
			pairs = append(pairs, [2]*end{from, part})
		}
	case to.node != nil && len(from.pods) > 0:
		for _, part := range from.byNode(to.node) {
			pairs = append(pairs, [2]*end{part, to})
		}
	case len(from.pods)+len(to.pods) > 0, from.node != nil, to.node != nil: // and nothing about two ends outside
		pairs = append(pairs, [2]*end{from, to})
	}
	return pairs
}

// byNode returns the end with its pods on the node, and with the others, as far as there are any.
func (e *end) byNode(node *corev1.Node) (parts []*end) {
	for _, is := range []bool{true, false} {
		part := *e
		part.pods = slices.DeleteFunc(slices.Clone(e.pods), func(p *corev1.Pod) bool { return (p.Spec.NodeName == node.Name) != is })
		if len(part.pods) > 0 {
			parts = append(parts, &part)
		}
	}
	return parts
}

// passes returns the verdicts of the packets of one family.
func (v *verdicts) passes(from, to *end, f model.Family, only model.PortRange) []Difference {
	var all verdictRanges
	var ports []model.PortRange
	switch {
	case only.Protocol.IsICMP():
		protocol, echo := model.EchoRequest(f)
		ports = append(ports, model.PortRange{Protocol: protocol, First: echo, Last: echo})
	case only.Protocol != model.AnyProtocol:
		ports = append(ports, only)
	}
	v.evaluate(from, to, f, ports, nil, func(r model.PortRange, now oracle.Verdict) { all.add(from, to, f, now, r) })
	for i := range all {
		all[i].From, all[i].To = from.names(), to.names()
	}
	return all.named()
}

// EvidenceOf identifies objects.
func EvidenceOf(o control.Objects) (Evidence, error) {
	e := Evidence{Revision: o.Revision, Nodes: len(o.Nodes), Namespaces: len(o.Namespaces), Pods: len(o.Pods), Policies: len(policiesOf(o))}
	o.Revision, o.Node = 0, ""
	data, err := json.Marshal(o)
	sum := sha256.Sum256(data)
	e.SHA256 = hex.EncodeToString(sum[:])
	return e, err
}

// Passes reports whether any packet passes.
func (r *Reach) Passes() bool {
	return slices.ContainsFunc(r.Ways, func(w Way) bool { return w.Verdict == Allowed })
}

// PrintReach prints an answer for people: the ways that pass, and with denied also the others.
func PrintReach(w io.Writer, r *Reach, denied bool) error {
	style := terminal.StyleFor(w)
	table := terminal.NewTable(style, "FROM", "TO", "PORTS", "VERDICT", "BECAUSE")
	families, rows, hidden := r.families(), 0, 0
	for _, way := range r.Ways {
		verdict := style.Good(Allowed)
		if way.Verdict == Denied {
			if !denied {
				hidden++
				continue
			}
			verdict = style.Bad(Denied)
		}
		ports := strings.Join(way.Ports, " ")
		if len(way.Families) < families {
			ports += " (" + strings.Join(way.Families, " ") + ")"
		}
		table.Row(list(way.From), list(way.To), ports, verdict, way.Because)
		rows++
	}
	var errs []error
	if rows > 0 {
		_, err := fmt.Fprintln(w, table)
		errs = append(errs, err)
	}
	if !r.Passes() {
		fmt.Fprintf(w, "No packet passes from %s to %s, on any port asked about.\n", named(r.From), named(r.To))
	}
	if n := len(r.NoAddress); n > 0 {
		fmt.Fprintf(w, "Not among these: %s without an address (%s).\n", Count(n, "pod"), list(r.NoAddress))
	}
	if hidden > 0 {
		fmt.Fprintf(w, "Denied: %s (--denied shows the reasons).\n", Count(hidden, "way"))
	}
	_, err := fmt.Fprintf(w, "%s\n", style.Faint(fmt.Sprintf("By %s, for %s and %s, as the agent of %s has them\n(sha256 %s). A pod always reaches itself.",
		countPolicies(r.Objects.Policies), Count(r.Objects.Pods, "pod"), Count(r.Objects.Nodes, "node"), r.Node, r.Objects.SHA256[:16])))
	return errors.Join(append(errs, err)...)
}

func countPolicies(n int) string {
	if n == 1 {
		return "1 policy"
	}
	return fmt.Sprintf("%d policies", n)
}

func (r *Reach) families() int {
	seen := map[string]bool{}
	for _, w := range r.Ways {
		for _, f := range w.Families {
			seen[f] = true
		}
	}
	return len(seen)
}

func named(end string) string {
	if end == "" {
		return "anywhere"
	}
	return end
}
