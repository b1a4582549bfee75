package driver

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/network-policy-api/apis/v1alpha2"

	"github.com/felixlike/felixlike/felixlike/backend"
	"github.com/felixlike/felixlike/felixlike/control"
	"github.com/felixlike/felixlike/felixlike/datastore"
	"github.com/felixlike/felixlike/felixlike/driver/drivertest"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/test/eventually"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestNothingIsProgrammedBeforeAllIsKnown(t *testing.T) {
	f := start(t)
	f.Source.Send(false, drivertest.Node("node1", "10.10.0.0/24"))
	notProgrammed(t, f, "first batch, listing incomplete")
	f.Source.Send(true)
	notProgrammed(t, f, "attachments unknown")
	f.AttachmentsSynced()
	if err := programmed(t, f); err != nil {
		t.Fatal(err)
	}
	if got, want := f.recorded.Log(), []string{"netlink", "nftables", "openflow"}; !slices.Equal(got, want) {
		t.Errorf("applied %v, want %v once, in order", got, want)
	}
}

func TestOwnNodeMissingIsReported(t *testing.T) {
	f := start(t)
	f.AttachmentsSynced()
	f.Source.Send(true, drivertest.Node("node2", "10.10.1.0/24"))
	notProgrammed(t, f, "own node unknown")
	problems := f.Status().Problems
	if len(problems) != 1 || problems[0].Object.Name != "node1" {
		t.Errorf("problems %v", problems)
	}
}

func TestOwnNodeLostKeepsPolicyGoing(t *testing.T) {
	f := start(t)
	f.AttachmentsSynced()
	f.Source.Send(true, drivertest.Node("node1", "10.10.0.0/24"))
	if err := programmed(t, f); err != nil {
		t.Fatal(err)
	}
	f.Source.Send(true, datastore.NodeDeleted{Name: "node1"}, drivertest.PodOn("a", "node1"))
	if err := programmed(t, f); err != nil {
		t.Fatalf("changes are not programmed without this node's object: %v", err)
	}
	if p := f.Status().Problems; len(p) != 1 || p[0].Object.Name != "node1" {
		t.Errorf("problems %v", p)
	}
	f.Source.Send(true, drivertest.Node("node1", "10.10.0.0/24"))
	if p := f.Status().Problems; len(p) != 0 {
		t.Errorf("problems left: %v", p)
	}
}

func TestStageThatHangsIsCutOff(t *testing.T) {
	hung := backend.Stage{Name: "openflow", Timeout: 10 * time.Millisecond, Apply: func(ctx context.Context) (backend.Applied, error) {
		<-ctx.Done()
		return backend.Applied{}, ctx.Err()
	}}
	if _, err := hung.Run(t.Context()); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("error %v", err)
	}
}

func TestRequiredStageHoldsBackLaterOnes(t *testing.T) {
	f := start(t)
	f.recorded.SetFailure("nftables", errors.New("refused"))
	f.AttachmentsSynced()
	f.Source.Send(true, drivertest.Node("node1", "10.10.0.0/24"))
	eventually.True(t, "the apply is tried again", func() bool { return len(f.recorded.Log()) >= 6 })
	if got := f.recorded.Log(); slices.Contains(got, "openflow") {
		t.Errorf("applied %v: flows must wait for policy", got)
	}
	if s := f.Status(); !strings.Contains(s.LastApply.Error, "nftables: refused") || s.Programmed != 0 {
		t.Errorf("status %+v", s)
	}
	f.recorded.SetFailure("nftables", nil)
	if err := programmed(t, f); err != nil {
		t.Fatal(err)
	}
	if s := f.Status(); s.LastApply.Error != "" || s.Programmed != 1 {
		t.Errorf("after recovery: %+v", s)
	}
}

// TestIncompleteStageHoldsNothingBack: an error behind everything that later stages rely on is reported and retried, and they run.
func TestIncompleteStageHoldsNothingBack(t *testing.T) {
	f := start(t)
	f.recorded.SetFailure("nftables", backend.Incomplete{Err: errors.New("no conntrack")})
	f.AttachmentsSynced()
	f.Source.Send(true, drivertest.Node("node1", "10.10.0.0/24"))
	eventually.True(t, "the stage is tried again", func() bool {
		return strings.Count(strings.Join(f.recorded.Log(), " "), "nftables") >= 3
	})
	if got := f.recorded.Log(); !slices.Contains(got, "openflow") {
		t.Errorf("applied %v: flows must not wait", got)
	}
	if s := f.Status(); !strings.Contains(s.LastApply.Error, "nftables: no conntrack") || s.Programmed != 1 {
		t.Errorf("status %+v", s)
	}
	f.recorded.SetFailure("nftables", nil)
	eventually.True(t, "the error is gone", func() bool { return f.Status().LastApply.Error == "" })
}

// TestUpdatesDuringAPass: the policy stage gets updates while an earlier stage of the cycle runs. When its turn comes, its
// managers have completed their work: with a half of it, a chain could look up a set that is no longer desired.
func TestUpdatesDuringAPass(t *testing.T) {
	table := drivertest.NewTable(t)
	entered, release := make(chan struct{}), make(chan struct{})
	var first sync.Once
	before := backend.Stage{Name: "netlink", Apply: func(context.Context) (backend.Applied, error) {
		first.Do(func() { close(entered); <-release })
		return backend.Applied{}, nil
	}}
	stage := table.Stage()
	f := startWith(t, Config{Stages: []backend.Stage{before, stage}, Backend: &drivertest.Backend{NameIs: "nftables", StageIs: stage}})
	f.AttachmentsSynced()
	f.Source.Send(true, drivertest.Node("node1", "10.10.0.0/24"))
	<-entered
	f.Source.Send(true, labelled("a"))
	eventually.True(t, "the loop has the next revision", func() bool { return f.Status().Observed == 2 })
	close(release)
	if err := programmed(t, f); err != nil {
		t.Fatal(err)
	}
}

func TestSyncWaitsForPods(t *testing.T) {
	f := start(t)
	id := model.PodID{Namespace: "x", Name: "a"}
	f.AttachmentsSynced()
	f.Source.Send(true, drivertest.Node("node1", "10.10.0.0/24"), drivertest.PodOn("a", "node1"))
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := f.Sync(ctx, []model.PodID{id}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a pod without an interface is programmed: %v", err)
	}
	f.Attach("a")
	if err := programmed(t, f, id); err != nil {
		t.Fatal(err)
	}
	if e := f.Status().Endpoints; len(e) != 1 || e[0].State != control.EndpointProgrammed {
		t.Errorf("endpoints %+v", e)
	}
	f.Attach("stranger")
	closed := func() bool {
		return slices.ContainsFunc(f.Status().Endpoints, func(e control.Endpoint) bool {
			return e.Name == "stranger" && e.State == control.EndpointClosed
		})
	}
	eventually.True(t, "a pod that the datastore does not know is closed", closed)
}

func TestProblemsNameTheFileAndGo(t *testing.T) {
	f := start(t)
	f.AttachmentsSynced()
	bad := &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "x", Name: "bad"}}
	bad.Spec.Ingress = []networkingv1.NetworkPolicyIngressRule{{From: []networkingv1.NetworkPolicyPeer{{IPBlock: &networkingv1.IPBlock{CIDR: "10.0.0.0/99"}}}}}
	f.Source.Send(true, drivertest.Node("node1", "10.10.0.0/24"), datastore.NetworkPolicySet{Policy: bad, Source: "bad.yaml"})
	if err := programmed(t, f); err != nil {
		t.Fatal(err)
	}
	problems := f.Status().Problems
	if len(problems) != 1 || problems[0].Source != "bad.yaml" || !strings.Contains(problems[0].Field, "spec.ingress[0].from[0].ipBlock") {
		t.Fatalf("problems %v", problems)
	}
	f.Source.Send(true, datastore.NetworkPolicyDeleted{Namespace: "x", Name: "bad"})
	if err := programmed(t, f); err != nil {
		t.Fatal(err)
	}
	if problems := f.Status().Problems; len(problems) != 0 {
		t.Errorf("problems left: %v", problems)
	}
}

// TestProblemsOfOtherObjectsEnd: a problem of a node with another one names the file, and ends when the other one goes.
func TestProblemsOfOtherObjectsEnd(t *testing.T) {
	f := start(t)
	f.begin(t)
	other := func(name, address string, born int64) datastore.Event {
		e := drivertest.Node(name, "10.10.1.0/24").(datastore.NodeSet)
		e.Node.Status.Addresses[0].Address, e.Node.CreationTimestamp = address, metav1.Unix(born, 0)
		e.Source = name + ".yaml"
		return e
	}
	f.Source.Send(true, other("node2", "192.168.50.12", 1), other("a-node3", "192.168.50.13", 2))
	if problems := f.Status().Problems; len(problems) != 1 || problems[0].Source != "a-node3.yaml" || !strings.Contains(problems[0].Reason, "overlaps 10.10.1.0/24 of node node2") {
		t.Errorf("problems %v", problems)
	}
	f.Source.Send(true, datastore.NodeDeleted{Name: "node2"})
	if problems := f.Status().Problems; len(problems) != 0 {
		t.Errorf("problems left: %v", problems)
	}
}

func TestProblemsNameClusterNetworkPolicies(t *testing.T) {
	f := start(t)
	f.AttachmentsSynced()
	bad := &v1alpha2.ClusterNetworkPolicy{ObjectMeta: metav1.ObjectMeta{Name: "bad"}}
	bad.Spec.Tier, bad.Spec.Priority = v1alpha2.AdminTier, -1
	f.Source.Send(true, drivertest.Node("node1", "10.10.0.0/24"), datastore.ClusterNetworkPolicySet{Policy: bad, Source: "bad.yaml"})
	if err := programmed(t, f); err != nil {
		t.Fatal(err)
	}
	problems := f.Status().Problems
	if len(problems) == 0 || problems[0].Source != "bad.yaml" || problems[0].Object.String() != "clusternetworkpolicy/bad" {
		t.Fatalf("problems %v", problems)
	}
	served, err := f.Objects(t.Context())
	if err != nil || len(served.ClusterPolicies) != 1 || served.ClusterPolicies[0].Name != "bad" {
		t.Errorf("served %v, %v", served.ClusterPolicies, err)
	}
	f.Source.Send(true, datastore.ClusterNetworkPolicyDeleted{Name: "bad"})
	if err := programmed(t, f); err != nil {
		t.Fatal(err)
	}
	if problems := f.Status().Problems; len(problems) != 0 {
		t.Errorf("problems left: %v", problems)
	}
}

func TestHostNetworkPodsAreNamed(t *testing.T) {
	f := start(t)
	f.AttachmentsSynced()
	onHost := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "x", Name: "proxy"}, Spec: corev1.PodSpec{NodeName: "node1", HostNetwork: true}}
	all := &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "x", Name: "all"}}
	f.Source.Send(true, drivertest.Node("node1", "10.10.0.0/24"), datastore.PodSet{Pod: onHost}, datastore.NetworkPolicySet{Policy: all, Source: "all.yaml"})
	if err := programmed(t, f); err != nil {
		t.Fatal(err)
	}
	problems := f.Status().Problems
	if len(problems) != 1 || problems[0].Source != "all.yaml" || !strings.Contains(problems[0].Reason, "x/proxy") {
		t.Fatalf("problems %v", problems)
	}
	f.Source.Send(true, datastore.PodDeleted{ID: model.PodID{Namespace: "x", Name: "proxy"}})
	if problems := f.Status().Problems; len(problems) != 0 {
		t.Errorf("problems left: %v", problems)
	}
}
