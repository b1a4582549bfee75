package serviceproxy_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/felixlike/felixlike/felixlike/backend"
	"github.com/felixlike/felixlike/felixlike/config"
	"github.com/felixlike/felixlike/felixlike/datastore"
	"github.com/felixlike/felixlike/felixlike/driver"
	"github.com/felixlike/felixlike/felixlike/driver/drivertest"
	"github.com/felixlike/felixlike/felixlike/driver/moduletest"
	"github.com/felixlike/felixlike/felixlike/serviceproxy"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/ovsfwd/pipeline"
	"github.com/felixlike/felixlike/test/eventually"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fixture is a module under a driver whose stage keeps the updates.
type fixture struct {
	*moduletest.Fixture
	*serviceproxy.Proxy
	table *drivertest.Table
	// kubeProxy is what kube-proxy has on the node. While looking fails, there may be more.
	kubeProxy atomic.Pointer[[]string]
	lookFails atomic.Bool
}

func start(t *testing.T, o serviceproxy.Options) *fixture {
	t.Helper()
	return startWith(t, "nftables", o)
}

// startWith is start under another backend.
func startWith(t *testing.T, backendName string, o serviceproxy.Options) *fixture {
	t.Helper()
	f := &fixture{table: drivertest.NewTable(t)}
	o.Node, o.Log, o.Resync = "node1", slog.New(slog.DiscardHandler), time.Millisecond
	o.KubeProxy = func(context.Context) ([]string, error) {
		var err error
		if f.lookFails.Load() {
			err = errors.New("iptables-legacy is missing")
		}
		if found := f.kubeProxy.Load(); found != nil {
			return *found, err
		}
		return nil, err
	}
	var v driver.View
	f.Proxy = serviceproxy.New(&v, o)
	f.Fixture = moduletest.Start(t, driver.Config{Backend: &drivertest.Backend{NameIs: backendName}, Stages: []backend.Stage{f.table.Stage()}}, &v, f.Module())
	return f
}

// freePort returns a port of this machine that was free.
func freePort(t *testing.T) int32 {
	t.Helper()
	l, err := net.Listen("tcp", ":0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return int32(l.Addr().(*net.TCPAddr).Port)
}

func balanced(check int32) datastore.Event {
	s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"}}
	s.Spec = corev1.ServiceSpec{
		Type: corev1.ServiceTypeLoadBalancer, ClusterIP: "10.96.0.1", ExternalTrafficPolicy: corev1.ServiceExternalTrafficPolicyLocal, HealthCheckNodePort: check,
		Ports: []corev1.ServicePort{{Port: 80, NodePort: 30080}},
	}
	return datastore.ServiceSet{Service: s, Source: "web.yaml"}
}

func endpointsOn(nodes ...string) datastore.Event {
	name, port := "", int32(8080)
	s := &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web-1", Labels: map[string]string{discoveryv1.LabelServiceName: "web"}}}
	s.Ports = []discoveryv1.EndpointPort{{Name: &name, Port: &port}}
	for i, node := range nodes {
		s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{Addresses: []string{fmt.Sprint("10.10.0.", i+1)}, NodeName: &node})
	}
	return datastore.EndpointSliceSet{Slice: s}
}

// TestUpdates: all ports come before the first ServiceHealthUpdate, and none before the first listing is complete.
func TestUpdates(t *testing.T) {
	f := start(t, serviceproxy.Options{})
	f.AttachmentsSynced()
	f.Source.Send(false, balanced(0))
	f.Begin(t, endpointsOn("node1", "node2"))
	var got []string
	for _, u := range f.table.Received() {
		switch u := u.(type) {
		case model.ServicePortUpdate:
			got = append(got, fmt.Sprint(u.Port.ID, " with ", len(u.Port.Frontends[0].Endpoints)))
		case model.ServiceHealthUpdate:
			got = append(got, fmt.Sprint("health ", len(u.All)))
		}
	}
	if text := strings.Join(got, ", "); text != "shop/web:80/tcp with 2, health 0" {
		t.Error(text)
	}
}

// TestHealthChecks: the answers are those of kube-proxy.
func TestHealthChecks(t *testing.T) {
	f, port := start(t, serviceproxy.Options{NodePortAddresses: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/30")}}), freePort(t)
	f.Begin(t, balanced(port), endpointsOn("node1", "node2", "node1"))
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	var last string
	ask := func(address string) (int, string, string) {
		r, err := client.Get(fmt.Sprintf("http://%s/", net.JoinHostPort(address, fmt.Sprint(port))))
		if err != nil {
			last = err.Error()
			return 0, "", ""
		}
		defer r.Body.Close()
		body, _ := io.ReadAll(r.Body)
		last = fmt.Sprint(r.StatusCode, string(body))
		return r.StatusCode, r.Header.Get("X-Load-Balancing-Endpoint-Weight"), string(body)
	}
	until := func(what string, code int, weight string, healthy bool) {
		t.Helper()
		eventually.True(t, what, func() bool {
			gotCode, gotWeight, body := ask("127.0.0.1")
			var a struct {
				Service             struct{ Namespace, Name string }
				LocalEndpoints      int
				ServiceProxyHealthy bool
			}
			if gotCode != 0 {
				if err := json.Unmarshal([]byte(body), &a); err != nil || a.Service.Namespace != "shop" || a.Service.Name != "web" || fmt.Sprint(a.LocalEndpoints) != gotWeight {
					t.Errorf("%v: %s", err, body)
				}
			}
			return gotCode == code && gotWeight == weight && a.ServiceProxyHealthy == healthy
		}, func() string { return last })
	}
	until("two endpoints", 200, "2", true)
	if code, _, _ := ask("127.0.0.5"); code != 0 {
		t.Errorf("an address outside nodePortAddresses answers %s", last)
	}
	f.Source.Send(true, endpointsOn("node2"))
	until("no endpoint here", 503, "0", true)
	f.Source.Send(true, endpointsOn("node1"))
	until("one endpoint", 200, "1", true)
	f.lookFails.Store(true)
	f.kubeProxy.Store(&[]string{"delete table ip kube-proxy"})
	until("kube-proxy runs too", 503, "1", false)
	if missing := f.Missing(t); !strings.Contains(missing, "kube-proxy serves Services as well: delete table ip kube-proxy") {
		t.Errorf("not ready because of %q", missing)
	}
	f.kubeProxy.Store(nil)
	f.lookFails.Store(false)
	until("without kube-proxy", 200, "1", true)
	f.Source.Send(true, datastore.ServiceDeleted{Namespace: "shop", Name: "web"})
	eventually.True(t, "the port is closed", func() bool { code, _, _ := ask("127.0.0.1"); return code == 0 }, func() string { return last })
}

// TestPortInUse: the Service whose port another program has is named, with its file, and served when the port is free.
func TestPortInUse(t *testing.T) {
	other, err := net.Listen("tcp", ":0")
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	f := start(t, serviceproxy.Options{})
	f.Begin(t, balanced(int32(other.Addr().(*net.TCPAddr).Port)), endpointsOn("node1"))
	eventually.True(t, "the port is named", func() bool {
		return strings.Contains(fmt.Sprint(f.Status().Problems), "web.yaml: service/shop/web: spec.healthCheckNodePort: not answered: listen tcp")
	}, func() string { return fmt.Sprint(f.Status().Problems) })
}

// TestServices: the answer for felixctl.
func TestServices(t *testing.T) {
	f := start(t, serviceproxy.Options{})
	f.Begin(t, balanced(0), endpointsOn("node1", "node2"))
	all, err := f.Services(t.Context(), "shop/web")
	if err != nil {
		t.Fatal(err)
	}
	got, err := json.Marshal(all)
	if err != nil {
		t.Fatal(err)
	}
	const want = `{"node":"node1","proxy":true,"services":[{"namespace":"shop","name":"web","ports":[{"protocol":"tcp","port":80,"frontends":[{"kind":"clusterIP","address":"10.96.0.1","port":80},{"kind":"nodePort","address":"0.0.0.0","port":30080}],` +
		`"endpoints":[{"address":"10.10.0.1:8080","node":"node1","local":true,"inside":"used","outside":"used"},{"address":"10.10.0.2:8080","node":"node2","local":false,"inside":"used","outside":"policy Local"}]}]}]}`
	if string(got) != want {
		t.Errorf("%s\nwant\n%s", got, want)
	}
	if _, err := f.Services(t.Context(), "shop/other"); err == nil || !strings.Contains(err.Error(), "shop/other: this node serves no such Service") {
		t.Error(err)
	}
}

// TestTranslator: under openflow the answer says which addresses pods reach through the bridge, and why others by way of the host.
func TestTranslator(t *testing.T) {
	for _, c := range []struct {
		name   string
		bridge pipeline.Node
		want   []string
	}{
		{"userspace datapath", pipeline.Node{Services: true, GatewayMAC: make([]byte, 6), ServiceCIDRs: []netip.Prefix{netip.MustParsePrefix("10.96.0.0/16")}}, []string{"clusterIP bridge ", "nodePort host not a cluster IP"}},
		{"another prefix of Services", pipeline.Node{Services: true, GatewayMAC: make([]byte, 6)}, []string{"clusterIP host outside the prefixes of Services", "nodePort host not a cluster IP"}},
		{"kernel's datapath", pipeline.Node{GatewayMAC: make([]byte, 6)}, []string{"clusterIP host the bridge has the kernel's datapath", "nodePort host the bridge has the kernel's datapath"}},
	} {
		f := startWith(t, config.OpenFlow, serviceproxy.Options{Bridge: c.bridge})
		f.Begin(t, drivertest.Node("node1", "10.11.0.0/24"), balanced(0), endpointsOn("node1", "node2"))
		all, err := f.Services(t.Context(), "shop/web")
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, a := range all.Services[0].Ports[0].Frontends {
			got = append(got, fmt.Sprint(a.Kind, " ", a.TranslatedBy, " ", a.ByHostBecause))
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}
