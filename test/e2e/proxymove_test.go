package e2e

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/felixlike/felixlike/felixlike/config"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/rules"
	"github.com/felixlike/felixlike/test/eventually"
	"github.com/felixlike/felixlike/test/lab"
	"github.com/felixlike/felixlike/test/lab/traffic"
)

// TestMoveFromKubeProxy takes the steps of felixctl migrate kube-proxy under traffic, node by node, and those back, under each backend, with
// one mode of kube-proxy each: connections through Services go on, and each new one gets through. While both serve, the agent says so.
func TestMoveFromKubeProxy(t *testing.T) {
	t.Parallel()
	for backend, mode := range map[string]string{config.NFTables: "iptables-legacy", config.IPTablesNFT: "nftables", config.OpenFlow: "iptables-nft"} {
		t.Run(backend+" "+mode, func(t *testing.T) {
			t.Parallel()
			moveFromKubeProxy(t, backend, mode)
		})
	}
}

// openWays opens the connections that get through without policy.
func openWays(t *testing.T, l *lab.Lab) map[string]*os.File {
	t.Helper()
	conns := map[string]*os.File{}
	for _, w := range serviceCases()[0].ways {
		for _, f := range model.Families() {
			if !w.through {
				continue
			}
			conn, err := w.open(l, f, patience)
			if err != nil {
				t.Fatalf("%s -> %s: %v", w.from, w.to, err)
			}
			t.Cleanup(func() { conn.Close() })
			conns[fmt.Sprintf("%s -> %s over IPv%s", w.from, w.to, f)] = conn
		}
	}
	return conns
}

// keepOpening opens such connections one after the other until end is called. Each has to get through.
func keepOpening(t *testing.T, l *lab.Lab) (end func()) {
	t.Helper()
	done, ended := make(chan struct{}), make(chan int)
	go func() {
		n := 0
		defer func() { ended <- n }()
		for {
			for _, w := range serviceCases()[0].ways {
				for _, f := range model.Families() {
					select {
					case <-done:
						return
					default:
					}
					if !w.through {
						continue
					}
					n++
					if err := w.try(l, f); err != nil {
						t.Errorf("a new connection %s -> %s over IPv%s: %v", w.from, w.to, f, err)
					}
				}
			}
		}
	}()
	return func() {
		close(done)
		t.Logf("%d new connections", <-ended)
	}
}

func moveFromKubeProxy(t *testing.T, backend, mode string) {
	l := newLabWith(t, lab.Config{Backend: backend})
	set(t, l, state(t, threeNodes))
	expect(t, l, true, "x/b", "ip:"+stranger, model.TCP, 80)
	if err := os.WriteFile(filepath.Join(l.Manifests(), "services.yaml"), []byte(serviceObjects(l)), 0o644); err != nil {
		t.Fatal(err)
	}
	nodes := []string{"node1", "node2", "node3"}
	remove := map[string]func(){}
	run := func(node string) {
		var all []func()
		for _, f := range model.Families() {
			all = append(all, proxyModes()[mode](t, l.Node(node), newProxy(l, l.Node(node), f, testedServices())))
		}
		remove[node] = func() {
			for _, r := range all {
				r()
			}
			delete(remove, node)
		}
	}
	defer func() {
		for _, r := range remove {
			r()
		}
	}()
	for _, node := range nodes {
		run(node)
	}
	old := openWays(t, l)
	end := keepOpening(t, l)
	goOn := func(when string) {
		t.Helper()
		for _, name := range slices.Sorted(maps.Keys(old)) {
			if err := traffic.Echo(old[name], patience); err != nil {
				t.Errorf("%s: %s: %v", when, name, err)
				delete(old, name)
			}
		}
	}
	serve := func(node, setting string) {
		t.Helper()
		l.Node(node).Settings().ServiceProxy = setting
		if err := l.RestartAgent(t.Context(), node); err != nil {
			t.Fatal(err)
		}
	}
	both := func(node string, want bool) {
		t.Helper()
		eventually.True(t, fmt.Sprintf("%s says that both serve: %v", node, want), func() bool {
			s, err := l.Node(node).Status(t.Context())
			return err == nil && slices.ContainsFunc(s.Problems, func(p model.Problem) bool { return p.Field == "serviceProxy" }) == want
		})
	}
	for _, node := range nodes {
		serve(node, config.ServiceProxyFull)
		both(node, true)
		remove[node]()
		both(node, false)
		goOn(node + " has moved")
	}
	moved := openWays(t, l)
	for _, node := range nodes {
		run(node)
		serve(node, config.ServiceProxyOff)
		goOn(node + " has moved back")
		feed(t, l.Node(node), "", "sh", "-c", "! nft list table inet "+rules.ServicesTable+" 2>/dev/null")
	}
	maps.Copy(old, moved)
	goOn("in the end")
	end()
}
