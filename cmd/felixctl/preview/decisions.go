package preview

import (
	"net/netip"
	"reflect"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/felixlike/felixlike/felixlike/policy/compile"
	"github.com/felixlike/felixlike/felixlike/policy/oracle"
	"github.com/felixlike/felixlike/model"
)

// decisions remembers what the policies of one end decide about the other: pods that these policies do not
// distinguish are judged once. It is for pods and addresses outside; packets of nodes have other rules.
type decisions struct {
	known    map[string][]decision
	traits   map[anyPolicy]*traits
	subjects map[subject]*sight
	// prefixes are those of pods.
	prefixes []netip.Prefix
}

// subject is an end by its addresses of a family, and sight the traits of its policies, and what these see in it.
type subject struct {
	*end
	model.Family
}

type sight struct {
	by  []*traits
	own []byte
}

// decision is that of one end about a range of ports.
type decision struct {
	model.PortRange
	oracle.Decision
}

// traits are all by which a policy distinguishes ends. More than it does is harmless.
type traits struct {
	anyPolicy
	id               string
	pods, namespaces []labels.Selector
	blocks           []netip.Prefix
	ports, addresses bool
}

func newDecisions(policies []anyPolicy) *decisions {
	d := &decisions{known: map[string][]decision{}, traits: map[anyPolicy]*traits{}, subjects: map[subject]*sight{}}
	for i, p := range policies {
		t := &traits{anyPolicy: p, id: "\n" + strconv.Itoa(i) + " ", pods: parsed(p.podSelectors()), namespaces: parsed(p.namespaceSelectors()), ports: p.namesPorts(), addresses: p.namesNodes()}
		for _, text := range p.prefixes() {
			if b, err := compile.ParseCIDR(text); err == nil {
				t.blocks = append(t.blocks, b)
			}
		}
		d.traits[p] = t
	}
	return d
}

// see appends what a policy sees in an end: the same for ends that it does not distinguish.
func (w *World) see(mark []byte, t *traits, e place) []byte {
	mark, pod := append(mark, t.id...), e.pod
	bit := func(is bool) {
		mark = append(mark, map[bool]byte{true: '1', false: '0'}[is])
	}
	for _, b := range t.blocks {
		bit(b.Contains(e.address))
	}
	if t.addresses {
		mark = append(mark, e.address.String()...)
	}
	if bit(pod != nil); pod != nil {
		for _, s := range t.pods {
			bit(s.Matches(labels.Set(pod.Labels)))
		}
		if n := w.namespaces[pod.Namespace]; len(t.namespaces) > 0 && n != nil {
			set := namespaceLabels(n)
			for _, s := range t.namespaces {
				bit(s.Matches(set))
			}
		}
		if t.network == nil || t.network.Namespace == pod.Namespace {
			mark = append(append(mark, ' '), pod.Namespace...)
		}
		if t.ports {
			mark = append(append(mark, ' '), classKey(&corev1.Pod{Spec: pod.Spec, ObjectMeta: metav1.ObjectMeta{}}, nil, nil)...)
		}
	}
	return mark
}

// place is an end of a packet.
type place struct {
	*end
	pod     *corev1.Pod
	address netip.Addr
}

// decide returns the decisions of the policies of one end, by ranges of ports.
func (w *World) decide(d model.Direction, of, peer place, f model.Family) []decision {
	is := w.decisions.subjects[subject{of.end, f}]
	if is == nil {
		is = &sight{}
		for _, p := range of.policies[0] {
			t := w.decisions.traits[p]
			is.by, is.own = append(is.by, t), w.see(is.own, t, of)
		}
		w.decisions.subjects[subject{of.end, f}] = is
	}
	key := append([]byte{byte(d), byte(f)}, is.own...)
	for _, t := range is.by {
		key = w.see(key, t, peer)
	}
	policies := of.policies[0]
	if w.objects.Antrea.Isolation && of.pod != nil { // it judges by both namespaces, and by pod prefixes
		key = append(append(key, '\n'), of.pod.Namespace...)
		if peer.pod != nil {
			key = append(append(key, ' '), peer.pod.Namespace...)
		}
		if slices.ContainsFunc(w.decisions.prefixes, func(p netip.Prefix) bool { return p.Contains(peer.address) }) {
			key = append(key, " in a pod prefix"...)
		}
		policies = slices.Concat(policies, slices.DeleteFunc(slices.Clone(peer.policies[0]), func(p anyPolicy) bool { return !isNetNamespace(p.antrea) }))
	}
	if all, known := w.decisions.known[string(key)]; known {
		return all
	}
	from, to := of, peer
	if d == model.Ingress {
		from, to = peer, of
	}
	cluster := w.cluster(from.pod, to.pod, policies)
	var all []decision
	for _, r := range spans(policies, to.pod, f) {
		v := cluster.Evaluate(oracle.Packet{Source: from.address, Destination: to.address, Protocol: r.Protocol, Port: r.First})
		one := decision{r, v.Egress}
		if d == model.Ingress {
			one.Decision = v.Ingress
		}
		if n := len(all) - 1; n >= 0 && all[n].Protocol == r.Protocol && reflect.DeepEqual(all[n].Decision, one.Decision) {
			all[n].Last = r.Last
			continue
		}
		all = append(all, one)
	}
	w.decisions.known[string(key)] = all
	return all
}

// both visits the packets of one family between pods and addresses outside, as evaluate does.
func (w *World) both(from, to *end, f model.Family, ports, others []model.PortRange, visit func(model.PortRange, oracle.Verdict)) {
	source, a := from.representative(f, func(*corev1.Pod) bool { return true })
	destination, b := to.representative(f, func(p *corev1.Pod) bool { return p != a })
	if !source.IsValid() || !destination.IsValid() || source == destination {
		return
	}
	egress := w.decide(model.Egress, place{from, a, source}, place{to, b, destination}, f)
	ingress := w.decide(model.Ingress, place{to, b, destination}, place{from, a, source}, f)
	cuts := inFamily(f, ports, others)
	// Both have every port of all protocols, in one order.
	for i, j := 0, 0; i < len(egress) && j < len(ingress); {
		r := egress[i].PortRange
		r.First, r.Last = max(r.First, ingress[j].First), min(r.Last, ingress[j].Last)
		v := oracle.Verdict{Egress: egress[i].Decision, Ingress: ingress[j].Decision}
		v.Allowed = v.Egress.Allowed && v.Ingress.Allowed
		for _, part := range cutAt(r, cuts) {
			if len(ports) == 0 || slices.ContainsFunc(ports, func(p model.PortRange) bool { return Covers(p, part) }) {
				visit(part, v)
			}
		}
		nextEgress, nextIngress := r.Last == egress[i].Last, r.Last == ingress[j].Last
		if nextEgress {
			i++
		}
		if nextIngress {
			j++
		}
	}
}

// cutAt returns the parts of a range that are in or out of each of the others.
func cutAt(r model.PortRange, others []model.PortRange) []model.PortRange {
	all := []model.PortRange{r}
	for _, o := range others {
		for i := 0; i < len(all); i++ {
			part := all[i]
			for _, first := range []int{int(o.First), int(o.Last) + 1} {
				if o.Protocol == part.Protocol && int(part.First) < first && first <= int(part.Last) {
					all[i].Last = uint16(first - 1)
					part.First = uint16(first)
					all = slices.Insert(all, i+1, part)
					break
				}
			}
		}
	}
	return all
}
