package kubernetestest

import (
	"context"
	"log/slog"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/felixlike/felixlike/felixlike/datastore"
	"github.com/felixlike/felixlike/model"
)

// Events tests that an API server takes the Events that a source writes: agent is
// how the source reaches it, admin how the test does. It takes ten seconds.
func Events(t *testing.T, admin, agent *rest.Config) {
	client, err := kubernetes.NewForConfig(admin)
	if err != nil {
		t.Fatal(err)
	}
	const name = "flx-events"
	t.Cleanup(func() {
		ctx := context.WithoutCancel(t.Context())
		if err := client.CoreV1().Namespaces().Delete(ctx, name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
			t.Error(err)
		}
		utilnet.CloseIdleConnectionsFor(client.CoreV1().RESTClient().(*rest.RESTClient).Client.Transport)
	})
	must(client.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}))(t)
	created := must(client.NetworkingV1().NetworkPolicies(name).Create(t.Context(), policy(name, "p"), metav1.CreateOptions{}))(t)
	v := Open(t, agent, slog.New(slog.DiscardHandler))
	v.Sync(t)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	ended := make(chan error, 1)
	go func() {
		ended <- v.Source().RecordEvents(ctx, func(context.Context) ([]datastore.Notice, error) {
			return []datastore.Notice{{
				Problem: model.Problem{Object: model.ObjectRef{Kind: "NetworkPolicy", Namespace: name, Name: "p"}, Field: "spec", Reason: "this is a test"},
				Kind:    "NotUnderstood",
			}}, nil
		})
	}()
	watch := must(client.EventsV1().Events(name).Watch(ctx, metav1.ListOptions{}))(t)
	defer watch.Stop()
	if _, ok := <-watch.ResultChan(); !ok {
		t.Fatal("no event")
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	list := must(client.EventsV1().Events(name).List(t.Context(), metav1.ListOptions{}))(t)
	if len(list.Items) != 1 {
		t.Fatalf("%d events", len(list.Items))
	}
	if e := list.Items[0]; e.Regarding.UID != created.UID || e.Note != "spec: this is a test" || e.Related == nil {
		t.Errorf("event: %+v", e)
	}
}
