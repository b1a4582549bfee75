package cluster

import (
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/felixlike/felixlike/test/cluster/knock"
	"github.com/felixlike/felixlike/test/cluster/kubelab"
)

// probeImageName is the image with the program knocker.
const probeImageName = "felixlike.test/knocker:1"

// closedPods is the number of pods that must never get a packet through.
const closedPods = 50

// probeImage builds the image that only tests use.
func probeImage(t *testing.T, s *site) string {
	t.Helper()
	program := filepath.Join(t.TempDir(), "knocker")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", program, "./knocker")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build knocker: %v\n%s", err, out)
	}
	archive := program + ".tar"
	if err := s.kit.Image(t.Context(), archive, probeImageName, program+":/knocker"); err != nil {
		t.Fatal(err)
	}
	return archive
}

// testNoOpenMoment starts pods under deny-all that send to all addresses of pods and
// nodes from their first instruction, beside pods that may send. Only packets of the
// latter arrive.
func testNoOpenMoment(t *testing.T, s *site) {
	onlyFull(t)
	const closed, free = "closed", "free"
	s.inNamespace(t, closed)
	s.inNamespace(t, free)
	s.apply(t, denyAll(closed))
	targets := podPrefixes(t, s)
	receivers := listenOnNodes(t, s)
	var manifests strings.Builder
	for _, node := range s.Nodes() {
		// Listeners first: they are there before the first knock.
		manifests.WriteString(knockers(free, "receiver-"+node, node, 1, nil))
	}
	s.apply(t, manifests.String())
	s.kubectl(t, "wait", "-n", free, "--for=condition=Available", "deployment", "--all", "--timeout="+readyTime.String())
	manifests.Reset()
	for _, node := range s.Nodes() {
		manifests.WriteString(knockers(closed, "closed-"+node, node, closedPods/len(s.Nodes()), targets))
		manifests.WriteString(knockers(free, "free-"+node, node, 1, targets))
	}
	s.apply(t, manifests.String())
	for _, ns := range []string{closed, free} {
		s.kubectl(t, "wait", "-n", ns, "--for=condition=Available", "deployment", "--all", "--timeout="+(2*readyTime).String())
	}
	until(t, readyTime, func() error { return allSent(t, s, closed, closedPods) })
	h := &arrivals{free: map[string]bool{}, owners: owners(t, s, closed, free)}
	h.read(t, s.kubectl(t, "logs", "-n", closed, "-l", "app=knocker", "--prefix", "--tail=-1", "--max-log-requests=100"))
	h.read(t, s.kubectl(t, "logs", "-n", free, "-l", "app=knocker", "--prefix", "--tail=-1", "--max-log-requests=100"))
	for node, r := range receivers {
		for _, line := range r.lines() {
			h.check(t, "node/"+node, line)
		}
	}
	t.Logf("%d received knocks; from pods that may send: %d kinds", h.count, len(h.free))
	if len(h.free) < 2*len(s.Nodes()) {
		t.Errorf("too few knocks of pods that may send: %v", h.free)
	}
}

// podPrefixes returns, per family and node, a prefix with the addresses that the
// node's first hundred pods have, and the nodes' own addresses.
func podPrefixes(t *testing.T, s *site) []string {
	t.Helper()
	var all []string
	for _, name := range s.Nodes() {
		var node corev1.Node
		if err := s.Get(t.Context(), &node, "node", name); err != nil {
			t.Fatal(err)
		}
		for _, text := range node.Spec.PodCIDRs {
			p, err := netip.ParsePrefix(text)
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, netip.PrefixFrom(p.Addr(), max(p.Bits(), p.Addr().BitLen()-7)).String())
		}
		for _, a := range node.Status.Addresses {
			if addr, err := netip.ParseAddr(a.Address); err == nil {
				all = append(all, netip.PrefixFrom(addr, addr.BitLen()).String())
			}
		}
	}
	return all
}

// knockers is the manifest of a deployment of pods that knock.
func knockers(ns, name, node string, replicas int, targets []string) string {
	return fmt.Sprintf(`---
apiVersion: apps/v1
kind: Deployment
metadata: {namespace: %[1]s, name: %[2]s}
spec:
  replicas: %[4]d
  selector: {matchLabels: {app: knocker, part: %[2]s}}
  template:
    metadata: {labels: {app: knocker, part: %[2]s}}
    spec:
      nodeSelector: {kubernetes.io/hostname: %[3]s}
      terminationGracePeriodSeconds: 0
      containers:
      - name: c
        image: %[5]s
        args: ["%[6]s"]
        env: [{name: NAME, valueFrom: {fieldRef: {fieldPath: metadata.name}}}]
`, ns, name, node, replicas, probeImageName, strings.Join(append([]string{"$(NAME)"}, targets...), `", "`))
}

// allSent returns an error until that many pods have sent all their packets.
func allSent(t *testing.T, s *site, ns string, want int) error {
	t.Helper()
	out, err := s.Kubectl(t.Context(), "logs", "-n", ns, "-l", "app=knocker", "--tail=-1", "--max-log-requests=100")
	if err != nil {
		return err
	}
	if done := strings.Count(out, "sent "); done < want {
		return fmt.Errorf("%d of %d pods have sent all", done, want)
	}
	return nil
}

// owners returns the names of the pods of namespaces by their addresses.
func owners(t *testing.T, s *site, namespaces ...string) map[string]string {
	t.Helper()
	owners := map[string]string{}
	for _, ns := range namespaces {
		pods, err := s.Pods(t.Context(), ns, "")
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range pods {
			for _, a := range kubelab.Addresses(&p) {
				owners[a.String()] = p.Name
			}
		}
	}
	return owners
}

// arrivals are the received knocks.
type arrivals struct {
	count  int
	free   map[string]bool
	owners map[string]string
}

// prefixed is a line of kubectl logs: [pod/NAME/c] received SENDER PROTOCOL ADDRESS.
var prefixed = regexp.MustCompile(`^\[pod/(\S+)/c\] received (.*)$`)

func (h *arrivals) read(t *testing.T, logs string) {
	t.Helper()
	for line := range strings.Lines(logs) {
		if m := prefixed.FindStringSubmatch(strings.TrimSpace(line)); m != nil {
			h.check(t, "pod/"+m[1], m[2])
		}
	}
}

// check judges a received knock: "NAME PROTOCOL ADDRESS".
func (h *arrivals) check(t *testing.T, at, line string) {
	t.Helper()
	h.count++
	words := strings.Fields(line)
	if len(words) != 3 {
		t.Errorf("%s received %q", at, line)
		return
	}
	sender := words[0]
	if sender == knock.Nameless {
		sender = h.owners[words[2]]
	}
	kind, name, _ := strings.Cut(at, "/")
	switch {
	case kind == "pod" && sender == name:
		// A pod always reaches itself.
	case kind == "node" && strings.Contains(sender, "-"+name+"-"):
		// And a pod and its own node each other.
	case !strings.HasPrefix(sender, "free-"), strings.HasPrefix(name, "closed-"):
		t.Errorf("%s received %s, which is of %q", at, line, sender)
	default:
		h.free[at+" "+line] = true
	}
}

// receiver receives knocks on a node.
type receiver struct {
	mu       sync.Mutex
	received []string
}

func (e *receiver) lines() []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return append([]string(nil), e.received...)
}

// listenOnNodes receives knocks on all nodes until the test ends.
func listenOnNodes(t *testing.T, s *site) map[string]*receiver {
	t.Helper()
	receivers := map[string]*receiver{}
	for _, node := range s.Nodes() {
		e := &receiver{}
		receivers[node] = e
		err := open(t, kubelab.Namespace(node)).Do(func() error {
			k, err := knock.Listen(t.Context(), func(from string) {
				e.mu.Lock()
				defer e.mu.Unlock()
				e.received = append(e.received, from)
			})
			if err == nil {
				t.Cleanup(func() { k.Close() })
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return receivers
}
