package kubernetes_test

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/felixlike/felixlike/felixlike/datastore/kubernetes"
	"github.com/felixlike/felixlike/internal/namespace"
	"github.com/felixlike/felixlike/test/kubernetestest"
)

// TestMovedAddress: when a node's address moves to another interface, netfilter forgets the connections that
// were masqueraded behind it, such as those to the API server's Service. The server's next packets are lost,
// and the agent must not wait for them.
func TestMovedAddress(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root, for network namespaces")
	}
	for _, tool := range []string{"ip", "nft"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skip(err)
		}
	}
	node, far := anonymous(t), anonymous(t)
	shell(t, far, fmt.Sprintf(`ip link add eth0 type veth peer name eth0 netns %s; ip address add 192.0.2.2/24 dev eth0; ip link set eth0 up; ip link set lo up`, fileOf(t, node)))
	shell(t, node, `ip address add 192.0.2.1/24 dev eth0; ip link set eth0 up; ip link set lo up; ip route add default via 192.0.2.2
nft -f - <<.
table ip proxy {
	chain output { type nat hook output priority -100; ip daddr 10.96.0.1 dnat to 192.0.2.2; }
	chain postrouting { type nat hook postrouting priority 100; masquerade fully-random; }
}
.`)
	var server *kubernetestest.Server
	if err := far.Do(func() (err error) {
		server, err = kubernetestest.Listen("192.0.2.2:0")
		return err
	}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Stop)
	within := func(ns *namespace.Namespace) func(context.Context, string, string) (net.Conn, error) {
		return func(ctx context.Context, network, address string) (conn net.Conn, err error) {
			err = ns.Do(func() error {
				conn, err = kubernetes.Dialer().DialContext(ctx, network, address)
				return err
			})
			return conn, err
		}
	}
	admin, agent := server.Config(kubernetestest.Admin), server.Config("agent")
	_, port, err := net.SplitHostPort(agent.Host[len("http://"):])
	if err != nil {
		t.Fatal(err)
	}
	admin.Dial, agent.Dial = within(far), within(node)
	agent.Host = "http://10.96.0.1:" + port
	f := &fixture{Server: server, Clientset: clientFor(t, admin)}
	f.serviceCIDR(t, "kubernetes", "10.96.0.0/16")
	f.pods(t, "a")
	v := kubernetestest.Open(t, agent, slog.New(slog.DiscardHandler))
	v.Sync(t)
	shell(t, node, `ip address del 192.0.2.1/24 dev eth0; ip address add 192.0.2.1/24 dev eth0; ip route add default via 192.0.2.2`)
	f.pods(t, "b")
	began := time.Now()
	v.Until(t, "a pod that comes after the move", has("b"))
	if took := time.Since(began); took > 15*time.Second {
		t.Errorf("it took %s", took)
	}
}

func anonymous(t *testing.T) *namespace.Namespace {
	t.Helper()
	ns, err := namespace.Anonymous()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(ns.Close)
	return ns
}

// fileOf returns a file that stands for a namespace.
func fileOf(t *testing.T, ns *namespace.Namespace) string {
	t.Helper()
	var file string
	if err := ns.Do(func() error {
		file = fmt.Sprintf("/proc/%d/task/%d/ns/net", os.Getpid(), unix.Gettid())
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return file
}

// shell runs a script inside a namespace.
func shell(t *testing.T, ns *namespace.Namespace, script string) {
	t.Helper()
	var out []byte
	if err := ns.Do(func() (err error) {
		out, err = exec.Command("sh", "-ec", script).CombinedOutput()
		return err
	}); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
}
