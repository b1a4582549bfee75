package preview

import (
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/yaml"

	"github.com/felixlike/felixlike/felixlike/control"
	"github.com/felixlike/felixlike/felixlike/policy/oracle"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/test/truthtable"
)

// TestProposalsAllow proposes policies for each denied probe of the truth tables. With them the packet passes, unless a note says why not, no other probe
// is denied, and no other passes but those between pods with the labels of its ends, on its port.
func TestProposalsAllow(t *testing.T) {
	files, err := filepath.Glob("../../../test/truthtable/testdata/*.jsonl")
	if err != nil || len(files) == 0 {
		t.Fatal("no truth tables", err)
	}
	allowed, noted := 0, 0
	for _, file := range files {
		steps, err := truthtable.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range steps {
			if testing.Short() && s.Step > 2 {
				continue
			}
			a, n := propose(t, &s, model.IPv4)
			allowed, noted = allowed+a, noted+n
		}
	}
	if t.Logf("%d packets would be allowed, of %d a note says why not", allowed, noted); allowed == 0 || noted == 0 {
		t.Error("one of both never happens")
	}
}

func propose(t *testing.T, s *truthtable.Step, f model.Family) (allowed, noted int) {
	t.Helper()
	o := s.Objects(f)
	now := control.Objects{Node: o.Nodes[0].Name, Nodes: o.Nodes, Namespaces: o.Namespaces, Pods: o.Pods, Policies: o.Policies, ClusterPolicies: o.ClusterPolicies, Antrea: o.Antrea}
	before := clusterOf(now, policiesOf(now))
	var probes []oracle.Packet
	for _, probe := range s.Probes {
		packet := oracle.Packet{Port: probe.Port, Source: address(t, s, probe.From, f), Destination: address(t, s, probe.To, f)}
		var err error
		if packet.Protocol, err = model.ParseProtocol(probe.Protocol); err != nil {
			t.Fatal(err)
		}
		probes = append(probes, packet)
	}
	for i, p := range probes {
		if before.Evaluate(p).Allowed {
			continue
		}
		proposal, err := Allow(now, p)
		if err != nil {
			t.Fatal(err)
		}
		then, added := now, read(t, proposal.YAML)
		then.Policies = append(then.Policies[:len(then.Policies):len(then.Policies)], added...)
		for _, np := range added {
			if !covers(now, np, p) {
				t.Errorf("%s: a proposal for %s is about other packets:\n%s", s, p, proposal.YAML)
			}
		}
		after := clusterOf(then, policiesOf(then))
		switch through := after.Evaluate(p).Allowed; {
		case through != (len(proposal.Notes) == 0):
			t.Errorf("%s: %s passes: %v, notes %q, with\n%s", s, p, through, proposal.Notes, proposal.YAML)
		case through:
			allowed++
		default:
			noted++
		}
		if i%16 != 0 { // each one against all is quadratic
			continue
		}
		for _, other := range probes {
			was, is := before.Evaluate(other).Allowed, after.Evaluate(other).Allowed
			if was && !is {
				t.Errorf("%s: to allow %s denies %s:\n%s", s, p, other, proposal.YAML)
			}
			if opens := func(np *networkingv1.NetworkPolicy) bool { return covers(now, np, other) }; !was && is && !slices.ContainsFunc(added, opens) {
				t.Errorf("%s: to allow %s opens %s too:\n%s", s, p, other, proposal.YAML)
			}
		}
	}
	return allowed, noted
}

// covers reports whether the rule of a proposed policy is about a packet: the labels of both ends, and the only port.
func covers(o control.Objects, np *networkingv1.NetworkPolicy, p oracle.Packet) bool {
	own, peer := p.Source, p.Destination
	var peers []networkingv1.NetworkPolicyPeer
	var ports []networkingv1.NetworkPolicyPort
	for _, r := range np.Spec.Egress {
		peers, ports = append(peers, r.To...), append(ports, r.Ports...)
	}
	for _, r := range np.Spec.Ingress {
		own, peer = p.Destination, p.Source
		peers, ports = append(peers, r.From...), append(ports, r.Ports...)
	}
	if len(peers) != 1 || len(ports) != 1 || ports[0].Port.IntValue() != int(p.Port) || !strings.EqualFold(string(*ports[0].Protocol), p.Protocol.String()) {
		return false
	}
	has := func(a netip.Addr, namespace string, s *metav1.LabelSelector) bool {
		return slices.ContainsFunc(o.Pods, func(pod *corev1.Pod) bool {
			return addressOf(pod, model.FamilyOf(a)) == a && pod.Namespace == namespace && labels.SelectorFromSet(s.MatchLabels).Matches(labels.Set(pod.Labels))
		})
	}
	if !has(own, np.Namespace, &np.Spec.PodSelector) {
		return false
	}
	if b := peers[0].IPBlock; b != nil {
		return netip.MustParsePrefix(b.CIDR).Contains(peer)
	}
	namespace := np.Namespace
	if s := peers[0].NamespaceSelector; s != nil {
		namespace = s.MatchLabels[corev1.LabelMetadataName]
	}
	return has(peer, namespace, peers[0].PodSelector)
}

func read(t *testing.T, text string) (all []*networkingv1.NetworkPolicy) {
	t.Helper()
	for one := range strings.SplitSeq(text, "---\n") {
		if one == "" {
			continue
		}
		p := &networkingv1.NetworkPolicy{}
		if err := yaml.UnmarshalStrict([]byte(one), p); err != nil {
			t.Fatalf("%v\n%s", err, one)
		}
		all = append(all, p)
	}
	return all
}

// TestProposal: labels that belong to one pod alone are left out, an address outside is an ipBlock, and what cannot be allowed has a reason.
func TestProposal(t *testing.T) {
	web := &corev1.Pod{}
	web.Namespace, web.Name, web.Labels = "shop", "web-5d4f-x2", map[string]string{"app": "web", "pod-template-hash": "5d4f"}
	bare := &corev1.Pod{}
	bare.Namespace, bare.Name, bare.Labels = "shop", "bare", map[string]string{"statefulset.kubernetes.io/pod-name": "bare"}
	for i, p := range []*corev1.Pod{web, bare} {
		p.Status.Phase = corev1.PodRunning
		p.Status.PodIPs = []corev1.PodIP{{IP: netip.AddrFrom4([4]byte{10, 0, 0, byte(i + 1)}).String()}}
	}
	deny := &networkingv1.NetworkPolicy{}
	deny.Namespace, deny.Name = "shop", "deny-all"
	deny.Spec.PolicyTypes = []networkingv1.PolicyType{networkingv1.PolicyTypeIngress, networkingv1.PolicyTypeEgress}
	ns := &corev1.Namespace{}
	ns.Name = "shop"
	o := control.Objects{Namespaces: []*corev1.Namespace{ns}, Pods: []*corev1.Pod{web, bare}, Policies: []*networkingv1.NetworkPolicy{deny}}
	for _, c := range []struct {
		from, to string
		protocol model.Protocol
		yaml     []string
		notes    string
	}{
		{"10.0.0.1", "192.0.2.7", model.TCP, []string{"name: allow-web-5d4f-x2-to-192-0-2-7-443-tcp", "app: web", "cidr: 192.0.2.7/32", "port: 443", "- Egress"}, ""},
		{"192.0.2.7", "10.0.0.1", model.UDP, []string{"cidr: 192.0.2.7/32", "protocol: UDP", "- Ingress"}, ""},
		{"10.0.0.1", "10.0.0.2", model.TCP, nil, "shop/bare has no label"},
		{"10.0.0.1", "192.0.2.7", model.ICMP, nil, "ICMP"},
	} {
		p, err := Allow(o, oracle.Packet{Source: netip.MustParseAddr(c.from), Destination: netip.MustParseAddr(c.to), Protocol: c.protocol, Port: 443})
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range c.yaml {
			if !strings.Contains(p.YAML, want) {
				t.Errorf("%s -> %s: %q is missing in\n%s", c.from, c.to, want, p.YAML)
			}
		}
		if notes := strings.Join(p.Notes, " "); !strings.Contains(notes, c.notes) || (notes == "") != (c.notes == "") || strings.Contains(p.YAML, "5d4f\n") {
			t.Errorf("%s -> %s: notes %q, want %q\n%s", c.from, c.to, notes, c.notes, p.YAML)
		}
	}
}

// TestProposalReplacesNothing: a policy that was proposed and created before stays, such as that for the same port of another protocol.
func TestProposalReplacesNothing(t *testing.T) {
	web := &corev1.Pod{}
	web.Namespace, web.Name, web.Labels = "shop", "web", map[string]string{"app": "web"}
	web.Status.Phase, web.Status.PodIPs = corev1.PodRunning, []corev1.PodIP{{IP: "10.0.0.1"}}
	deny := &networkingv1.NetworkPolicy{}
	deny.Namespace, deny.Name = "shop", "deny-all"
	deny.Spec.PolicyTypes = []networkingv1.PolicyType{networkingv1.PolicyTypeEgress}
	other := &networkingv1.NetworkPolicy{}
	other.Namespace, other.Name = "shop", "allow-web-to-192-0-2-7-53-sctp"
	ns := &corev1.Namespace{}
	ns.Name = "shop"
	o := control.Objects{Namespaces: []*corev1.Namespace{ns}, Pods: []*corev1.Pod{web}, Policies: []*networkingv1.NetworkPolicy{deny, other}}
	known := map[string]bool{deny.Name: true, other.Name: true}
	for _, protocol := range []model.Protocol{model.TCP, model.UDP, model.SCTP} {
		p, err := Allow(o, oracle.Packet{Source: netip.MustParseAddr("10.0.0.1"), Destination: netip.MustParseAddr("192.0.2.7"), Protocol: protocol, Port: 53})
		if err != nil {
			t.Fatal(err)
		}
		all := read(t, p.YAML)
		if len(all) != 1 || known[all[0].Name] {
			t.Fatalf("%s: replaces a policy:\n%s", protocol, p.YAML)
		}
		known[all[0].Name] = true
		o.Policies = append(o.Policies, all...)
	}
}
