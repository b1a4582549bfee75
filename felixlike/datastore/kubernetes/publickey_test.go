package kubernetes_test

import (
	"os"
	"reflect"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/felixlike/felixlike/felixlike/datastore/kubernetes"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/test/kubernetestest"
)

// TestPublishKey: the key gets to this node's object, beside its other annotations, and from there to other nodes. The deployed
// ClusterRole grants the request and nothing else.
func TestPublishKey(t *testing.T) {
	f := newFixture(t)
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", Annotations: map[string]string{"other": "stays", model.PublicKeyAnnotation: "old"}}}
	if _, err := f.CoreV1().Nodes().Create(t.Context(), node, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	v := f.open(t)
	key := model.PublicKey{1, 2, 3}
	if err := v.Source().PublishKey(t.Context(), key); err != nil {
		t.Fatal(err)
	}
	whole, err := f.CoreV1().Nodes().Get(t.Context(), "n1", metav1.GetOptions{})
	if want := map[string]string{"other": "stays", model.PublicKeyAnnotation: key.String()}; err != nil || !reflect.DeepEqual(whole.Annotations, want) {
		t.Errorf("annotations %v, %v", whole.Annotations, err)
	}
	v.Until(t, "the key", func(s kubernetestest.Seen) bool {
		n := s.Nodes["n1"]
		return n != nil && reflect.DeepEqual(n.Annotations, map[string]string{model.PublicKeyAnnotation: key.String()})
	})
	data, err := os.ReadFile("../../../deploy/components/wireguard/rbac.yaml")
	if err != nil {
		t.Fatal(err)
	}
	document, _, _ := strings.Cut(string(data), "\n---\n")
	var role rbacv1.ClusterRole
	if err := yaml.Unmarshal([]byte(document), &role); err != nil || !reflect.DeepEqual(role.Rules, kubernetes.KeyRights()) {
		t.Errorf("deployed are %v, %v", role.Rules, err)
	}
}
