package control

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/felixlike/felixlike/felixlike/health"
	"github.com/felixlike/felixlike/model"
)

func TestStatusRoundTrip(t *testing.T) {
	want := Status{
		Version: "v0.1", Node: "n1", Backend: "nftables", Datastore: "manifests", PID: 7,
		StartedAt: time.Date(2026, 11, 20, 10, 0, 0, 0, time.UTC), InSync: true, Observed: 9, Programmed: 8,
		LastApply: Apply{At: time.Date(2026, 11, 20, 10, 0, 1, 0, time.UTC), Duration: time.Millisecond, Error: "no"},
		Writes:    map[string]int{"nftables": 3},
		Policies:  []Policy{{Tier: "networkpolicy", Namespace: "x", Name: "deny", IngressRules: 1, Endpoints: 2}},
		Endpoints: []Endpoint{{Namespace: "x", Name: "a", Interface: "flx1", Addresses: []string{"10.1.0.2"}, State: EndpointProgrammed}},
		Nodes:     []Node{{Name: "n1", Addresses: []string{"192.0.2.1"}, PodCIDRs: []string{"10.1.0.0/24"}, Local: true}},
		Problems:  []model.Problem{{Source: "a.yaml", Object: model.ObjectRef{Kind: "Pod", Name: "p"}, Reason: "bad"}},
	}
	path, _ := serve(t, &fakeAgent{status: want})
	got, err := NewClient(path).Status(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("status (-want +got):\n%s", diff)
	}
}

// TestProbes: the socket answers kubelet's probes.
func TestProbes(t *testing.T) {
	for _, c := range []struct {
		name, path, want string
		agent            *fakeAgent
		well             bool
	}{
		{"alive", health.LivePath, "ok", &fakeAgent{}, true},
		{"stuck", health.LivePath, "stuck: the loop has not moved", &fakeAgent{alive: errors.New("the loop has not moved")}, false},
		{"ready", health.ReadyPath, "ready\nnote: default/p is closed", &fakeAgent{ready: health.Readiness{Notes: []string{"default/p is closed"}}}, true},
		{"not ready", health.ReadyPath, "not ready: node n1 is not in the datastore", &fakeAgent{ready: health.Readiness{Missing: []string{"node n1 is not in the datastore"}}}, false},
	} {
		path, stop := serve(t, c.agent)
		if well, answer, err := NewClient(path).Probe(t.Context(), c.path); err != nil || well != c.well || answer != c.want {
			t.Errorf("%s: %v, %q, %v, want %v, %q", c.name, well, answer, err, c.well, c.want)
		}
		if err := stop(); err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
		if _, _, err := NewClient(path).Probe(t.Context(), c.path); !NotRunning(err) {
			t.Errorf("%s, without an agent: %v", c.name, err)
		}
	}
}

func TestObjects(t *testing.T) {
	path, _ := serve(t, &fakeAgent{status: Status{Node: "n1", Observed: 7}})
	got, err := NewClient(path).Objects(context.Background())
	if err != nil || got.Node != "n1" || got.Revision != 7 {
		t.Errorf("objects = %+v, %v", got, err)
	}
}

// TestModelRoundTrip: the client receives the agent's model unchanged.
func TestModelRoundTrip(t *testing.T) {
	agent := &fakeAgent{status: Status{Node: "n1", Programmed: 7}}
	path, _ := serve(t, agent)
	got, err := NewClient(path).Model(context.Background())
	want, _ := agent.Model(context.Background())
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("model = %+v, %v, want %+v", got, err, want)
	}
	var attached *model.Attachment
	for _, u := range got.Updates() {
		if a, ok := u.(model.AttachmentUpdate); ok {
			attached = a.Attachment
		}
	}
	if attached == nil || attached.MAC.String() != "aa:bb:cc:00:00:01" || attached.OFPort != 3 {
		t.Errorf("attachment %+v", attached)
	}
}

func TestHits(t *testing.T) {
	path, _ := serve(t, &fakeAgent{status: Status{Node: "n1"}})
	got, err := NewClient(path).Hits(context.Background())
	if err != nil || got.Node != "n1" || len(got.Rules) != 1 || got.Rules[0].Never() || !got.Rules[0].Last.IsZero() {
		t.Errorf("hits = %+v, %v", got, err)
	}
}

func TestConnections(t *testing.T) {
	want := []Connection{{Protocol: model.TCP, Source: netip.MustParseAddr("10.0.0.1"), SourcePort: 40000, Destination: netip.MustParseAddr("fd00::2"), Port: 80}}
	path, _ := serve(t, &fakeAgent{connections: want})
	got, err := NewClient(path).Connections(context.Background())
	if diff := cmp.Diff(want, got, cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); diff != "" || err != nil {
		t.Errorf("connections (-want +got):\n%s, %v", diff, err)
	}
}

func TestSockets(t *testing.T) {
	path, _ := serve(t, &fakeAgent{})
	got, err := NewClient(path).Sockets(context.Background())
	if err != nil || len(got) != 2 || got[0].Owner() != "sshd" || got[1].Owner() != "a process of user 100" || got[0].Peer.IsValid() || got[0].Local.Port() != 22 {
		t.Errorf("sockets = %+v, %v", got, err)
	}
}

func TestSyncCarriesPods(t *testing.T) {
	agent := &fakeAgent{synced: make(chan []model.PodID, 1)}
	agent.programmed.Store(4)
	path, _ := serve(t, agent)
	pods := []model.PodID{{Namespace: "x", Name: "a"}, {Namespace: "y", Name: "b"}}
	revision, err := NewClient(path).Sync(context.Background(), pods...)
	if err != nil || revision != 4 {
		t.Fatalf("Sync = %d, %v; want 4", revision, err)
	}
	if diff := cmp.Diff(pods, <-agent.synced); diff != "" {
		t.Errorf("pods (-want +got):\n%s", diff)
	}
	if _, err := NewClient(path).Sync(context.Background()); err != nil {
		t.Errorf("Sync without pods: %v", err)
	}
	if pods := <-agent.synced; len(pods) != 0 {
		t.Errorf("pods = %v; want none", pods)
	}
}

func TestWaitProgrammed(t *testing.T) {
	agent := &fakeAgent{}
	path, _ := serve(t, agent)
	client := NewClient(path)

	// A wait in which the machine leaves no time for the answer is tried again, longer.
	for long := 200 * time.Millisecond; ; long *= 4 {
		ctx, cancel := context.WithTimeout(context.Background(), long)
		_, err := client.WaitProgrammed(ctx, 5)
		cancel()
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("error = %v; want a deadline", err)
		}
		if strings.Contains(err.Error(), "revision 0 of 5 is programmed") {
			break
		}
		if long > 10*time.Second {
			t.Fatalf("error = %v; want the agent's own words", err)
		}
	}

	got := make(chan uint64, 1)
	go func() {
		revision, _ := client.WaitProgrammed(context.Background(), 5)
		got <- revision
	}()
	agent.programmed.Store(6)
	if revision := <-got; revision != 6 {
		t.Errorf("WaitProgrammed = %d; want 6", revision)
	}
}

func TestSetBackend(t *testing.T) {
	path, _ := serve(t, &fakeAgent{})
	client := NewClient(path)
	if err := client.SetBackend(t.Context(), "iptables"); err != nil {
		t.Error(err)
	}
	if err := client.SetBackend(t.Context(), "tables"); err == nil || !strings.Contains(err.Error(), "must be iptables") {
		t.Errorf("error = %v; want the agent's own words", err)
	}
}

func TestCallerHangsUp(t *testing.T) {
	path, stop := serve(t, &fakeAgent{})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() {
		_, err := NewClient(path).WaitProgrammed(ctx, 5)
		done <- err
	}()
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("error = %v; want cancelled", err)
	}
	if err := stop(); err != nil {
		t.Errorf("Serve: %v", err)
	}
}

func TestServerEndsWaitingCalls(t *testing.T) {
	path, stop := serve(t, &fakeAgent{})
	done := make(chan error, 1)
	go func() {
		_, err := NewClient(path).WaitProgrammed(context.Background(), 5)
		done <- err
	}()
	if err := stop(); err != nil {
		t.Fatalf("Serve: %v", err)
	}
	if err := <-done; err == nil {
		t.Error("the waiting call succeeded")
	}
	if _, err := os.Lstat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("socket after the end: %v; want none", err)
	}
	_, err := NewClient(path).Status(context.Background())
	if !NotRunning(err) {
		t.Errorf("error = %v; want not running", err)
	}
}

func TestAgentError(t *testing.T) {
	path, _ := serve(t, &fakeAgent{err: errors.New("pod x/a: not attached")})
	_, err := NewClient(path).Sync(context.Background())
	if err == nil || !strings.Contains(err.Error(), "pod x/a: not attached") {
		t.Errorf("error = %v; want the agent's", err)
	}
}

func TestBadRequests(t *testing.T) {
	path, _ := serve(t, &fakeAgent{})
	tests := []struct {
		method, target, body string
		code                 int
		want                 string
	}{
		{"GET", "/v2/status", "", 404, `unknown API version "v2": this agent serves v1`},
		{"GET", "/", "", 404, `unknown API version ""`},
		{"GET", "/v1/nothing", "", 404, "unknown path /v1/nothing"},
		{"POST", "/v1/status", "", 405, "the method must be GET"},
		{"GET", "/v1/sync", "", 405, "the method must be POST"},
		{"GET", "/v1/programmed", "", 400, `revision "": must be an unsigned number`},
		{"GET", "/v1/programmed?revision=-1", "", 400, `revision "-1"`},
		{"GET", "/v1/programmed?revision=1&timeout=soon", "", 400, `timeout "soon"`},
		{"GET", "/v1/programmed?revision=1&timeout=-1s", "", 400, `timeout "-1s"`},
		{"GET", "/v1/programmed?revision=1&timeout=1ms", "", 504, "deadline exceeded"},
		{"POST", "/v1/sync", `{"pods":["a"]}`, 400, `pod "a": must be namespace/name`},
		{"POST", "/v1/sync", `{"pods":["a/b/c"]}`, 400, `pod "a/b/c"`},
		{"POST", "/v1/sync", `{"Pod":["a/b"]}`, 400, "unknown field"},
		{"POST", "/v1/sync", `{} {}`, 400, "more than one JSON value"},
		{"POST", "/v1/sync", `{`, 400, "request body"},
	}
	client := httpClient(path)
	for _, test := range tests {
		t.Run(test.method+" "+test.target, func(t *testing.T) {
			request, err := http.NewRequest(test.method, "http://agent"+test.target, strings.NewReader(test.body))
			if err != nil {
				t.Fatal(err)
			}
			response, err := client.Do(request)
			if err != nil {
				t.Fatal(err)
			}
			defer response.Body.Close()
			body, err := io.ReadAll(response.Body)
			if err != nil {
				t.Fatal(err)
			}
			text := strings.ReplaceAll(string(body), `\"`, `"`)
			if response.StatusCode != test.code || !strings.Contains(text, test.want) {
				t.Errorf("got %d %s; want %d %s", response.StatusCode, text, test.code, test.want)
			}
		})
	}
}

// TestIdleCallers: callers that send nothing take a bounded number of descriptors.
func TestIdleCallers(t *testing.T) {
	path, _ := serve(t, &fakeAgent{})
	var idle []net.Conn
	for range maxConnections {
		conn, err := net.Dial("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		idle = append(idle, conn)
	}
	answered := make(chan error, 1)
	go func() {
		_, err := NewClient(path).Status(context.Background())
		answered <- err
	}()
	select {
	case err := <-answered:
		t.Fatalf("a caller beside %d idle ones was answered: %v", len(idle), err)
	case <-time.After(100 * time.Millisecond):
	}
	for _, conn := range idle[:2] { // one may stand for serve's own call
		conn.Close()
	}
	if err := <-answered; err != nil {
		t.Errorf("a caller, when others have gone: %v", err)
	}
}
