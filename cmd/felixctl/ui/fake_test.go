package ui

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/felixlike/felixlike/felixlike/control"
	"github.com/felixlike/felixlike/model"
)

// agents is an Access that answers by what a test has made.
type agents struct {
	nodes   []string
	data    map[string]data
	objects control.Objects
	// answers are those to other commands, by name, or by name and node.
	answers map[string]string
	mu      sync.Mutex
	asked   [][]string
	stdin   string
	// fails is why no node is asked.
	fails error
	// hangs holds up all answers until it is closed.
	hangs chan struct{}
}

func (a *agents) Ask(_ context.Context, nodes []string, stdin []byte, command ...string) ([]Answer, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.hangs != nil {
		<-a.hangs
	}
	if a.fails != nil {
		return nil, a.fails
	}
	a.stdin = string(stdin)
	a.asked = append(a.asked, append(slices.Clone(nodes), command...))
	var all []Answer
	for _, n := range a.nodes {
		if len(nodes) > 0 && !slices.Contains(nodes, n) {
			continue
		}
		d, answers := a.data[n]
		out := []byte(cmp.Or(a.answers[command[0]+" "+n], a.answers[command[0]]))
		if command[0] == CommandName {
			if command[len(command)-1] == "--objects" {
				if d.Objects == nil {
					d.Objects, _ = json.Marshal(a.objects) //nolint:errchkjson // a test's own
				}
			}
			out, _ = json.Marshal(d) //nolint:errchkjson // a test's own
		}
		one := Answer{Node: n, Out: out}
		if !answers {
			one = Answer{Node: n, Fault: "no answer within 1m0s"}
		}
		all = append(all, one)
	}
	return all, nil
}

// Trace answers as the nodes together do.
func (a *agents) Trace(_ context.Context, flags ...string) ([]byte, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.asked = append(a.asked, append([]string{"trace"}, flags...))
	if text := a.answers["trace"]; text != "" {
		return []byte(text), a.fails
	}
	return nil, errors.New("no node answers")
}

// someAgents has a node whose agent answers, with these objects.
func someAgents(o control.Objects) *agents {
	o.Node, o.InSync = "n1", true
	status := control.Status{Node: "n1", Backend: "nftables", AgentVersion: "v0", InSync: true, StartedAt: time.Now(), Observed: 1, Programmed: 1}
	return &agents{nodes: []string{"n1"}, objects: o, answers: map[string]string{}, data: map[string]data{"n1": {Now: time.Now(), Status: status, Drops: control.DropHistory{From: time.Now().Add(-2 * time.Hour)}, Hits: control.Hits{At: time.Now()}}}}
}

// change changes what a node answers.
func (a *agents) change(node string, by func(*data)) {
	d := a.data[node]
	by(&d)
	a.data[node] = d
}

// fail makes all questions fail from now on.
func (a *agents) fail(err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.fails = err
}

// hold makes all questions wait from now on.
func (a *agents) hold(until chan struct{}) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.hangs = until
}

func pod(namespace, name string, number int, labels map[string]string) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: labels}}
	p.Spec.NodeName = "n1"
	p.Status.Phase = corev1.PodRunning
	p.Status.PodIPs = []corev1.PodIP{{IP: fmt.Sprintf("10.1.%d.%d", number/250, number%250+1)}}
	return p
}

func allow(namespace, name, app, from string, port int32) *networkingv1.NetworkPolicy {
	p := &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	p.Spec.PodSelector.MatchLabels = map[string]string{"app": app}
	p.Spec.PolicyTypes = []networkingv1.PolicyType{networkingv1.PolicyTypeIngress}
	number := intstr.FromInt32(port)
	p.Spec.Ingress = []networkingv1.NetworkPolicyIngressRule{{
		Ports: []networkingv1.NetworkPolicyPort{{Port: &number}},
		From:  []networkingv1.NetworkPolicyPeer{{PodSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": from}}}},
	}}
	return p
}

// manyClasses returns a cluster of namespaces, each with apps that have a policy, and pods for each app.
func manyClasses(namespaces, apps, pods int) control.Objects {
	o := control.Objects{Nodes: []*corev1.Node{{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}}}
	for n := range namespaces {
		namespace := fmt.Sprintf("team-%d", n)
		o.Namespaces = append(o.Namespaces, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}})
		for a := range apps {
			app := fmt.Sprintf("service-%d", a)
			o.Policies = append(o.Policies, allow(namespace, app, app, fmt.Sprintf("service-%d", (a+1)%apps), 8080))
			for i := range pods {
				o.Pods = append(o.Pods, pod(namespace, fmt.Sprintf("%s-%d", app, i), len(o.Pods), map[string]string{"app": app}))
			}
		}
	}
	return o
}

// shop has a database that web may reach, and an isolated pod.
func shop() *agents {
	o := control.Objects{
		Nodes:      []*corev1.Node{{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}},
		Namespaces: []*corev1.Namespace{{ObjectMeta: metav1.ObjectMeta{Name: "shop"}}, {ObjectMeta: metav1.ObjectMeta{Name: "ops"}}},
		Pods: []*corev1.Pod{
			pod("shop", "web", 1, map[string]string{"app": "web"}), pod("shop", "db", 2, map[string]string{"app": "db"}),
			pod("ops", "shell", 3, nil), pod("ops", "shell-2", 4, nil),
		},
		Policies: []*networkingv1.NetworkPolicy{allow("shop", "db-from-web", "db", "web", 5432)},
	}
	o.Policies = append(o.Policies, &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "nothing"}, Spec: networkingv1.NetworkPolicySpec{
		PodSelector: metav1.LabelSelector{MatchLabels: map[string]string{"app": "nobody"}},
	}})
	a := someAgents(o)
	a.nodes = append(a.nodes, "n2") // it does not answer
	d := a.data["n1"]
	d.Status.Endpoints = []control.Endpoint{{Namespace: "shop", Name: "db", State: control.EndpointClosed, Reason: "shop/x is quarantined", IngressPolicies: []string{"networkpolicy/shop/db-from-web"}}}
	d.Status.Problems = []model.Problem{{Object: model.ObjectRef{Kind: "NetworkPolicy", Namespace: "shop", Name: "odd"}, Reason: "it is odd"}}
	end := func(pod, ip string) control.DropEnd {
		return control.DropEnd{Pod: pod, Address: netip.MustParseAddr(ip)}
	}
	drop := control.Drop{At: time.Now(), Direction: "ingress", From: end("ops/shell", "10.1.0.4"), To: end("shop/db", "10.1.0.3"), Protocol: "tcp", Port: 5432, By: control.ByIsolation, Policies: []string{"networkpolicy/shop/db-from-web"}}
	d.Drops.Minutes = []control.DropMinute{{Begin: d.Now.Truncate(time.Minute).Add(-time.Minute), Flows: []control.DropFlow{{Drop: drop, Packets: 120, Last: time.Now()}}}}
	d.Hits.Rules = []control.RuleHits{{Policy: "networkpolicy/shop/db-from-web", Rule: "ingress[0]", Connections: 7}}
	a.data["n1"] = d
	return a
}

// site is a server that a test asks.
type site struct {
	*server
	*httptest.Server
}

func serve(t testing.TB, a Access, around ...func(http.Handler) http.Handler) site {
	t.Helper()
	h := httptest.NewUnstartedServer(nil)
	s, err := newServer(t.Context(), a, h.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	h.Config.Handler = s
	for _, f := range around {
		h.Config.Handler = f(h.Config.Handler)
	}
	h.Start()
	t.Cleanup(h.Close)
	return site{s, h}
}

// request returns one with the token.
func (s site) request(t testing.TB, method, path string, form url.Values) *http.Request {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, s.URL+path, strings.NewReader(form.Encode()))
	if err != nil {
		t.Fatal(err)
	}
	r.AddCookie(&http.Cookie{Name: s.cookie(), Value: s.token})
	if method == http.MethodPost {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		r.Header.Set("Origin", s.URL)
	}
	return r
}

func (s site) do(t testing.TB, r *http.Request) (*http.Response, string) {
	t.Helper()
	client := http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	answer, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	var text bytes.Buffer
	if _, err := io.Copy(&text, answer.Body); err != nil {
		t.Fatal(err)
	}
	return answer, text.String()
}

// get returns a page.
func (s site) get(t testing.TB, path string) string {
	t.Helper()
	answer, text := s.do(t, s.request(t, http.MethodGet, path, nil))
	if answer.StatusCode != http.StatusOK {
		t.Fatalf("%s: %s: %s", path, answer.Status, text)
	}
	return text
}
