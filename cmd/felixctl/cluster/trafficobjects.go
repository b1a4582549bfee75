package cluster

import (
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/felixlike/felixlike/cmd/felixctl/trafficprobe"
)

// Ports of the servers: policy allows the first and denies the second.
const (
	openPort    = 8080
	closedPort  = 8081
	servicePort = 80
)

const (
	// serverName names the servers' Service and policy, and is their label.
	serverName = "server"
	role       = "felixlike.io/traffic"
	// nobody is the user of the pods.
	nobody = 65534
)

// trafficNamespace is the name of a check's namespace: two checks at once do not meet.
func trafficNamespace(now time.Time) string {
	return "felixlike-traffic-" + strconv.FormatInt(now.UnixNano(), 36)
}

// serverOf and clientOf name the pods of the node with this number.
func serverOf(node int) string { return "server-" + strconv.Itoa(node) }
func clientOf(node int) string { return "client-" + strconv.Itoa(node) }

// objects returns the namespace with all that is in it.
func (c *traffic) objects() corev1.List {
	open := intstr.FromInt32(openPort)
	dual := corev1.IPFamilyPolicyPreferDualStack
	servers := map[string]string{role: serverName}
	in := metav1.ObjectMeta{Name: serverName, Namespace: c.namespace}
	all := []runtime.Object{
		&corev1.Namespace{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Namespace"}, ObjectMeta: metav1.ObjectMeta{Name: c.namespace}},
		// The default one may come later than the pods.
		&corev1.ServiceAccount{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ServiceAccount"}, ObjectMeta: in},
		&networkingv1.NetworkPolicy{
			TypeMeta: metav1.TypeMeta{APIVersion: "networking.k8s.io/v1", Kind: "NetworkPolicy"}, ObjectMeta: in,
			Spec: networkingv1.NetworkPolicySpec{
				PodSelector: metav1.LabelSelector{MatchLabels: servers},
				Ingress:     []networkingv1.NetworkPolicyIngressRule{{Ports: []networkingv1.NetworkPolicyPort{{Port: &open}}}},
				PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeIngress},
			},
		},
		&corev1.Service{
			TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Service"}, ObjectMeta: in,
			Spec: corev1.ServiceSpec{
				Type: corev1.ServiceTypeNodePort, Selector: servers, IPFamilyPolicy: &dual,
				Ports: []corev1.ServicePort{{Port: servicePort, TargetPort: open}},
			},
		},
	}
	for i, a := range c.agents {
		all = append(all,
			c.pod(serverOf(i), a.Node, serverName, ":"+strconv.Itoa(openPort), ":"+strconv.Itoa(closedPort)),
			c.pod(clientOf(i), a.Node, "client", ":"+strconv.Itoa(openPort)))
	}
	list := corev1.List{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "List"}}
	for _, o := range all {
		list.Items = append(list.Items, runtime.RawExtension{Object: o})
	}
	return list
}

// pod returns a pod on a node that serves the addresses. The namespace may have the strictest
// level of Pod Security.
func (c *traffic) pod(name, node, as string, addresses ...string) *corev1.Pod {
	yes, no, grace, user := true, false, int64(0), int64(nobody)
	return &corev1.Pod{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: c.namespace, Labels: map[string]string{role: as}},
		Spec: corev1.PodSpec{
			ServiceAccountName: serverName,
			NodeName:           node, TerminationGracePeriodSeconds: &grace, AutomountServiceAccountToken: &no, EnableServiceLinks: &no,
			Tolerations: []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
			SecurityContext: &corev1.PodSecurityContext{
				RunAsNonRoot: &yes, RunAsUser: &user, SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
			},
			Containers: []corev1.Container{{
				// The node has the image: its agent runs by it.
				Name: "probe", Image: c.image, ImagePullPolicy: corev1.PullIfNotPresent,
				Command: append([]string{"felixctl", trafficprobe.CommandName, "serve"}, addresses...),
				ReadinessProbe: &corev1.Probe{
					ProbeHandler: corev1.ProbeHandler{TCPSocket: &corev1.TCPSocketAction{Port: intstr.FromInt32(openPort)}}, PeriodSeconds: 1,
				},
				SecurityContext: &corev1.SecurityContext{
					AllowPrivilegeEscalation: &no, ReadOnlyRootFilesystem: &yes, Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
				},
			}},
		},
	}
}
