package driver

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/network-policy-api/apis/v1alpha2"

	"github.com/felixlike/felixlike/felixlike/antrea"
	"github.com/felixlike/felixlike/felixlike/datastore"
	"github.com/felixlike/felixlike/felixlike/driver/drivertest"
)

// denies returns a ClusterNetworkPolicy for the pods of the namespaces with a label.
func denies(name string, tier v1alpha2.Tier, priority int32, label string) datastore.Event {
	p := &v1alpha2.ClusterNetworkPolicy{ObjectMeta: metav1.ObjectMeta{Name: name}}
	p.Spec.Tier, p.Spec.Priority = tier, priority
	p.Spec.Subject.Namespaces = &metav1.LabelSelector{MatchLabels: map[string]string{label: "yes"}}
	p.Spec.Egress = []v1alpha2.ClusterNetworkPolicyEgressRule{{
		Action: v1alpha2.ClusterNetworkPolicyRuleActionDeny,
		To:     []v1alpha2.ClusterNetworkPolicyEgressPeer{{Networks: []v1alpha2.CIDR{"192.0.2.0/24"}}},
	}}
	return datastore.ClusterNetworkPolicySet{Policy: p, Source: name + ".yaml"}
}

// TestEqualPrioritiesAreNamed: policies of one tier and priority that a pod is a subject
// of are named in status and as a notice, each at the later one. Other tiers,
// priorities and subjects are not.
func TestEqualPrioritiesAreNamed(t *testing.T) {
	f := start(t)
	f.AttachmentsSynced()
	x := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "x", Labels: map[string]string{"all": "yes", "x": "yes"}}}
	f.Source.Send(true, drivertest.Node("node1", "10.10.0.0/24"), datastore.NamespaceSet{Namespace: x}, drivertest.PodOn("a", "node1"),
		denies("c", v1alpha2.AdminTier, 7, "x"), denies("b", v1alpha2.AdminTier, 7, "all"), denies("a", v1alpha2.AdminTier, 8, "all"),
		denies("d", v1alpha2.BaselineTier, 7, "all"), denies("e", v1alpha2.AdminTier, 7, "others"))
	if err := programmed(t, f); err != nil {
		t.Fatal(err)
	}
	problems := f.Status().Problems
	if len(problems) != 1 || problems[0].Source != "c.yaml" || problems[0].Object.String() != "clusternetworkpolicy/c" ||
		!strings.Contains(problems[0].Reason, "7 is also the priority of clusternetworkpolicy/b in the same tier") {
		t.Fatalf("problems %v", problems)
	}
	if got := noticesOf(t, f); got != "clusternetworkpolicy/c EqualPriority some spec.priority" {
		t.Errorf("notices: %s", got)
	}
	f.Source.Send(true, denies("c", v1alpha2.AdminTier, 9, "x"))
	if err := programmed(t, f); err != nil {
		t.Fatal(err)
	}
	if problems := f.Status().Problems; len(problems) > 0 {
		t.Errorf("with priorities of their own: %v", problems)
	}
}

// TestManyEqualPriorities: a policy that follows others of its priority, for each pod another one, becomes one problem and one
// notice, which stay the same. Clusters may have hundreds of policies with one priority.
func TestManyEqualPriorities(t *testing.T) {
	f := start(t)
	f.AttachmentsSynced()
	events := []datastore.Event{drivertest.Node("node1", "10.10.0.0/24"), denies("z", v1alpha2.AdminTier, 7, "all")}
	for _, name := range []string{"e", "d", "c", "b", "a"} {
		events = append(events, denies(name, v1alpha2.AdminTier, 7, name),
			datastore.NamespaceSet{Namespace: &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"all": "yes", name: "yes"}}}},
			datastore.PodSet{Pod: &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: name, Name: "web"}, Spec: corev1.PodSpec{NodeName: "node1"}}})
	}
	f.Source.Send(true, events...)
	if err := programmed(t, f); err != nil {
		t.Fatal(err)
	}
	for range 20 {
		if problems := f.Status().Problems; len(problems) != 1 || !strings.Contains(problems[0].Reason, "priority of clusternetworkpolicy/a in") {
			t.Fatalf("problems %v", problems)
		}
		all, err := f.Notices(t.Context())
		if err != nil || len(all) != 1 || all[0].Object.Name != "z" || !strings.Contains(all[0].Reason, "priority of clusternetworkpolicy/a in") {
			t.Fatalf("notices %v, %v", all, err)
		}
	}
}

// TestEqualInvalidPriorities: a priority that is not valid counts as 0, as for the engine.
func TestEqualInvalidPriorities(t *testing.T) {
	f := start(t)
	f.AttachmentsSynced()
	x := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "x", Labels: map[string]string{"all": "yes"}}}
	f.Source.Send(true, drivertest.Node("node1", "10.10.0.0/24"), datastore.NamespaceSet{Namespace: x}, drivertest.PodOn("a", "node1"),
		denies("a", v1alpha2.AdminTier, 0, "all"), denies("b", v1alpha2.AdminTier, -1, "all"))
	if err := programmed(t, f); err != nil {
		t.Fatal(err)
	}
	if got, want := noticesOf(t, f), "clusternetworkpolicy/b EqualPriority some spec.priority"; !strings.Contains(got, want) {
		t.Errorf("notices: %s", got)
	}
}

// TestEqualNamesAreNoEqualPriorities: a policy of Antrea's API is not the ClusterNetworkPolicy of
// its name.
func TestEqualNamesAreNoEqualPriorities(t *testing.T) {
	f := start(t)
	f.AttachmentsSynced()
	x := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "x", Labels: map[string]string{"all": "yes"}}}
	namesake := &antrea.ClusterNetworkPolicy{ObjectMeta: metav1.ObjectMeta{Name: "web"}, Spec: antrea.PolicySpec{
		Tier: "application", Priority: 5, AppliedTo: []antrea.AppliedTo{{NamespaceSelector: &metav1.LabelSelector{}}},
		Egress: []antrea.Rule{{Action: antrea.Drop, To: []antrea.Peer{{IPBlock: &antrea.IPBlock{CIDR: "192.0.2.0/24"}}}}},
	}}
	f.Source.Send(true, drivertest.Node("node1", "10.10.0.0/24"), datastore.NamespaceSet{Namespace: x}, drivertest.PodOn("a", "node1"),
		denies("web", v1alpha2.AdminTier, 5, "all"), denies("other", v1alpha2.AdminTier, 9, "all"), datastore.AntreaSet{Object: namesake, Source: "antrea.yaml"})
	if err := programmed(t, f); err != nil {
		t.Fatal(err)
	}
	if problems := f.Status().Problems; len(problems) > 0 {
		t.Errorf("problems %v", problems)
	}
}

// antreaDrop returns an event for a ClusterNetworkPolicy of Antrea's API for all pods.
func antreaDrop(name, tier string, priority float64) datastore.Event {
	return datastore.AntreaSet{Source: name + ".yaml", Object: &antrea.ClusterNetworkPolicy{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: antrea.PolicySpec{
		Tier: tier, Priority: priority,
		Ingress: []antrea.Rule{{Action: antrea.Drop, AppliedTo: []antrea.AppliedTo{{PodSelector: &metav1.LabelSelector{}}}}},
		Egress:  []antrea.Rule{{Action: antrea.Drop, AppliedTo: []antrea.AppliedTo{{NamespaceSelector: &metav1.LabelSelector{}, PodSelector: &metav1.LabelSelector{}}}}},
	}}}
}

func antreaTierOf(name string, priority int32) datastore.Event {
	return datastore.AntreaSet{Source: name + ".yaml", Object: &antrea.Tier{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: antrea.TierSpec{Priority: priority}}}
}

// TestEqualAntreaPrioritiesAreNamed: policies of Antrea's API with equal tier and priority are named,
// also if their tiers are two with one priority. The parts of one policy are not.
func TestEqualAntreaPrioritiesAreNamed(t *testing.T) {
	f := start(t)
	f.AttachmentsSynced()
	x := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "x"}}
	f.Source.Send(true, drivertest.Node("node1", "10.10.0.0/24"), datastore.NamespaceSet{Namespace: x}, drivertest.PodOn("a", "node1"), antreaTierOf("mine", 50),
		antreaDrop("c", "mine", 5), antreaDrop("b", "emergency", 5), antreaDrop("d", "emergency", 5.5), antreaDrop("e", "", 5), antreaDrop("f", "baseline", 5))
	if err := programmed(t, f); err != nil {
		t.Fatal(err)
	}
	want := "clusternetworkpolicy.crd.antrea.io/c EqualPriority some spec.priority\ntier.crd.antrea.io/mine EqualPriority all spec.priority"
	if got := noticesOf(t, f); got != want {
		t.Errorf("notices: %s", got)
	}
	for _, p := range f.Status().Problems {
		if p.Object.Name == "c" && (p.Source != "c.yaml" || !strings.Contains(p.Reason, "so clusternetworkpolicy.crd.antrea.io/b is evaluated first")) {
			t.Errorf("problem %v", p)
		}
	}
}

// TestEqualTiersAreNamed: a Tier with the priority of a default tier, or of another Tier, is named in
// status and as a notice. The object of a default tier, and one that is not in force, is not.
func TestEqualTiersAreNamed(t *testing.T) {
	f := start(t)
	f.AttachmentsSynced()
	f.Source.Send(true, drivertest.Node("node1", "10.10.0.0/24"), antreaTierOf("emergency", 50), antreaTierOf("mine", 50), antreaTierOf("one", 7), antreaTierOf("two", 7), antreaTierOf("late", 250))
	if err := programmed(t, f); err != nil {
		t.Fatal(err)
	}
	want := `tier.crd.antrea.io/late NotUnderstood all spec.priority
tier.crd.antrea.io/mine EqualPriority all spec.priority
tier.crd.antrea.io/two EqualPriority all spec.priority`
	if got := noticesOf(t, f); got != want {
		t.Errorf("notices: %s", got)
	}
	var reasons []string
	for _, p := range f.Status().Problems {
		if strings.Contains(p.Reason, "evaluated as those of one tier") {
			reasons = append(reasons, p.Source+": "+p.Reason)
		}
	}
	if len(reasons) != 2 || !strings.HasPrefix(reasons[0], "mine.yaml: 50 is also the priority of tier emergency") || !strings.HasPrefix(reasons[1], "two.yaml: 7 is also the priority of tier one") {
		t.Errorf("problems %q", reasons)
	}
	f.Source.Send(true, antreaTierOf("mine", 51), antreaTierOf("two", 8), antreaTierOf("late", 249))
	if err := programmed(t, f); err != nil {
		t.Fatal(err)
	}
	if problems := f.Status().Problems; len(problems) > 0 {
		t.Errorf("with priorities of their own: %v", problems)
	}
}

// TestUnresolvedClusterPortIsNamed: a Deny with a port name that no pod declares matches
// nothing, and its author gets an Event.
func TestUnresolvedClusterPortIsNamed(t *testing.T) {
	f := start(t)
	f.AttachmentsSynced()
	x := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "x", Labels: map[string]string{"all": "yes"}}}
	p := denies("a", v1alpha2.AdminTier, 1, "all").(datastore.ClusterNetworkPolicySet)
	p.Policy.Spec.Egress[0].To = []v1alpha2.ClusterNetworkPolicyEgressPeer{{Namespaces: &metav1.LabelSelector{}}}
	p.Policy.Spec.Egress[0].Protocols = []v1alpha2.ClusterNetworkPolicyProtocol{{DestinationNamedPort: "web"}}
	f.Source.Send(true, drivertest.Node("node1", "10.10.0.0/24"), datastore.NamespaceSet{Namespace: x}, drivertest.PodOn("a", "node1"), p)
	if err := programmed(t, f); err != nil {
		t.Fatal(err)
	}
	if got, want := noticesOf(t, f), "clusternetworkpolicy/a NamedPortUnresolved some spec"; got != want {
		t.Errorf("notices: %s", got)
	}
}

// TestUnresolvedAntreaPortIsNamed: so does the author of a policy of Antrea's API. A policy with peers in the subject's
// own namespace is named once, and not if a pod of one namespace declares the port.
func TestUnresolvedAntreaPortIsNamed(t *testing.T) {
	f := start(t)
	f.AttachmentsSynced()
	port := intstr.FromString("web")
	p := &antrea.ClusterNetworkPolicy{ObjectMeta: metav1.ObjectMeta{Name: "a"}, Spec: antrea.PolicySpec{
		Priority: 5, AppliedTo: []antrea.AppliedTo{{NamespaceSelector: &metav1.LabelSelector{}}},
		Ingress: []antrea.Rule{{
			Action: antrea.Drop, Ports: []antrea.Port{{Port: &port}},
			From: []antrea.Peer{{Namespaces: &antrea.PeerNamespaces{Match: antrea.MatchSelf}}},
		}},
	}}
	events := []datastore.Event{drivertest.Node("node1", "10.10.0.0/24"), datastore.AntreaSet{Object: p, Source: "a.yaml"}}
	pods := map[string]*corev1.Pod{}
	for _, name := range []string{"x", "y"} {
		pods[name] = &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: name, Name: "a"}, Spec: corev1.PodSpec{NodeName: "node1"}}
		pods[name].Status.PodIPs = []corev1.PodIP{{IP: map[string]string{"x": "10.10.0.5", "y": "10.10.0.6"}[name]}}
		events = append(events, datastore.NamespaceSet{Namespace: &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}}, datastore.PodSet{Pod: pods[name]})
	}
	f.Source.Send(true, events...)
	if err := programmed(t, f); err != nil {
		t.Fatal(err)
	}
	if got, want := noticesOf(t, f), "clusternetworkpolicy.crd.antrea.io/a NamedPortUnresolved some spec"; got != want {
		t.Errorf("notices: %s", got)
	}
	if problems := f.Status().Problems; len(problems) != 1 || problems[0].Source != "a.yaml" || !strings.Contains(problems[0].Reason, "port tcp/web are about") {
		t.Errorf("problems %v", problems)
	}
	declares := pods["y"].DeepCopy()
	declares.Spec.Containers = []corev1.Container{{Ports: []corev1.ContainerPort{{Name: "web", ContainerPort: 80}}}}
	f.Source.Send(true, datastore.PodSet{Pod: declares})
	if err := programmed(t, f); err != nil {
		t.Fatal(err)
	}
	if got := noticesOf(t, f); got != "" {
		t.Errorf("notice although a pod declares it: %s", got)
	}
}
