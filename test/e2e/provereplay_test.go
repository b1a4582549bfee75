package e2e

import (
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/felixlike/felixlike/cmd/felixctl/labs"
	"github.com/felixlike/felixlike/cmd/felixctl/prove"
	"github.com/felixlike/felixlike/felixlike/config"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/test/eventually"
)

var counterexamples = flag.Int("counterexamples", 6, "replay so many counterexamples in TestCounterexamples, of each backend")

// answered are the ports at which pods answer: those of the policies, and the smallest one.
var answered = []uint16{1, 5000, 5432, 8080}

// replayed has the pods.
func replayed() string {
	var all strings.Builder
	ports := ""
	for _, p := range answered {
		ports += fmt.Sprintf("{containerPort: %d}, ", p)
	}
	for _, name := range []string{"web", "api", "db", "job"} {
		fmt.Fprintf(&all, "{apiVersion: v1, kind: Pod, metadata: {namespace: shop, name: %s, labels: {app: %s}}, spec: {nodeName: node1, containers: [{name: c, image: i, ports: [%s]}]}}\n---\n", name, name, ports)
	}
	return all.String()
}

// policies has pods judged in both directions, by selectors, networks and ports.
const policies = `
{apiVersion: networking.k8s.io/v1, kind: NetworkPolicy, metadata: {namespace: shop, name: api}, spec: {podSelector: {matchLabels: {app: api}}, ingress: [{from: [{podSelector: {matchLabels: {app: web}}}], ports: [{port: 8080, endPort: 8083}]}]}}
---
{apiVersion: networking.k8s.io/v1, kind: NetworkPolicy, metadata: {namespace: shop, name: db}, spec: {podSelector: {matchLabels: {app: db}}, policyTypes: [Ingress, Egress], ingress: [{from: [{podSelector: {matchLabels: {app: api}}}, {ipBlock: {cidr: 10.10.0.0/24, except: [10.10.0.0/28]}}], ports: [{port: 5432}]}], egress: [{to: [{podSelector: {matchLabels: {app: job}}}]}]}}
---
{apiVersion: networking.k8s.io/v1, kind: NetworkPolicy, metadata: {namespace: shop, name: web}, spec: {podSelector: {matchLabels: {app: web}}, policyTypes: [Egress], egress: [{to: [{podSelector: {}}], ports: [{port: 8080}, {port: 5432}]}]}}
`

// otherPolicies has random policies in the place of policies.
func otherPolicies(r *rand.Rand) string {
	peers := func() string {
		all := []string{
			"{podSelector: {matchLabels: {app: web}}}", "{podSelector: {matchLabels: {app: job}}}", "{podSelector: {matchExpressions: [{key: app, operator: NotIn, values: [db]}]}}",
			"{ipBlock: {cidr: 10.10.0.0/24, except: [10.10.0.12/31]}}", "{ipBlock: {cidr: 10.10.0.8/29}}", "{namespaceSelector: {}, podSelector: {matchLabels: {app: api}}}", "{ipBlock: {cidr: 'fd00:10::/64'}}",
		}
		r.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
		return strings.Join(all[:1+r.IntN(3)], ", ")
	}
	ports := func() string {
		all := []string{"{port: 5432}", "{port: 8080}", "{port: 5000, endPort: 6000}", "{port: 8080, endPort: 8090}", "{protocol: UDP, port: 53}"}
		return all[r.IntN(len(all))] + ", " + all[r.IntN(len(all))]
	}
	var all []string
	for _, name := range []string{"api", "db", "web"} {
		spec := ""
		if r.IntN(4) > 0 {
			spec += fmt.Sprintf(", ingress: [{from: [%s], ports: [%s]}, {from: [%s]}]", peers(), ports(), peers())
		}
		types := "Ingress"
		if spec == "" || r.IntN(2) == 0 {
			types = "Ingress, Egress"
			spec += fmt.Sprintf(", egress: [{to: [%s], ports: [%s]}, {to: [%s]}]", peers(), ports(), peers())
		}
		all = append(all, fmt.Sprintf("{apiVersion: networking.k8s.io/v1, kind: NetworkPolicy, metadata: {namespace: shop, name: %s}, spec: {podSelector: {matchLabels: {app: %s}}, policyTypes: [%s]%s}}", name, name, types, spec))
	}
	return strings.Join(all, "\n---\n")
}

// TestCounterexamples changes what is programmed while the agent is stopped: a rule, an element or a flow goes, or a flow comes. Where felixctl
// prove says that a packet between pods tells the two states apart, that packet is sent in both, and gets the two verdicts.
func TestCounterexamples(t *testing.T) {
	t.Parallel()
	needLab(t)
	for _, backend := range []string{config.NFTables, config.OpenFlow} {
		t.Run(backend, func(t *testing.T) {
			t.Parallel()
			name := fmt.Sprintf("ce-%d-%s", os.Getpid(), backend)
			ctl := labNamed(t, name)
			t.Cleanup(func() { ctl(0, "down", "--ignore-not-found") })
			ctl(0, "up", "--nodes", "1", "--backend", backend, "-f", file(t, replayed()+policies))
			status, err := labs.NewClient(labs.DefaultRoot, name).Status(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			node := status.Nodes[0]
			dir := t.TempDir()
			t.Cleanup(func() { signalAgent(t, node.AgentPID, unix.SIGCONT) })
			held := &heldState{node: node, openflow: backend == config.OpenFlow, dir: dir}
			held.save(t, name)
			r := rand.New(rand.NewPCG(7, uint64(len(backend))))
			probe := func(p prove.Packet, want string) string {
				t.Helper()
				timeout := "2s"
				if want == "accepted" {
					timeout = patience.String() // the machine may be busy
				}
				out, _, code := felixctl(t, "lab", "--name", name, "probe", p.From, p.To, fmt.Sprintf("%d/%s", p.Port, p.Protocol), "--family", family(p), "--timeout", timeout)
				if code > 1 {
					t.Fatalf("probe %s: %s", p, out)
				}
				return map[int]string{0: "accepted", 1: "not accepted"}[code]
			}
			tried, sent := 0, 0
			for ; sent < *counterexamples && tried < 10**counterexamples; tried++ {
				if tried%5 == 4 {
					ctl(0, "apply", "-f", file(t, otherPolicies(r)))
					held.save(t, name)
				}
				signalAgent(t, node.AgentPID, unix.SIGSTOP)
				what := held.change(t, r)
				found := held.counterexamples(t, what)
				if len(found) > 0 {
					sent++
				}
				for _, p := range found {
					if got := probe(p.Packet, short(p.B)); got != short(p.B) {
						t.Errorf("%s: %s is %s, and prove says %q", what, p.Packet, got, p.B)
					}
				}
				signalAgent(t, node.AgentPID, unix.SIGCONT) // it repairs what has changed
				eventually.True(t, "the agent repairs "+what, func() bool {
					_, _, code := felixctl(t, "diff", held.before, "live", "--snapshots", dir, "--lab", name)
					return code == 0
				})
				for _, p := range found {
					if got := probe(p.Packet, short(p.A)); got != short(p.A) {
						t.Errorf("before %s: %s is %s, and prove says %q", what, p.Packet, got, p.A)
					}
				}
			}
			if t.Logf("%d changes, %d of them with a packet that was sent", tried, sent); sent < *counterexamples {
				t.Errorf("only %d changes matter between pods", sent)
			}
		})
	}
}

// short is what a probe can tell of a verdict.
func short(verdict string) string {
	if strings.HasPrefix(verdict, "accepted") || strings.HasPrefix(verdict, "to the pod ") {
		return "accepted"
	}
	return "not accepted"
}

func family(p prove.Packet) string {
	if p.Source.Is6() {
		return "6"
	}
	return "4"
}

func signalAgent(t *testing.T, pid int, s unix.Signal) {
	t.Helper()
	if err := unix.Kill(pid, s); err != nil {
		t.Fatal(err)
	}
	if s != unix.SIGSTOP {
		return
	}
	eventually.True(t, "all threads of the agent have stopped", func() bool {
		threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
		return err == nil && !slices.ContainsFunc(threads, func(path string) bool {
			text, err := os.ReadFile(path)
			return err != nil || !strings.Contains(string(text), ") T ")
		})
	})
}

// heldState is what a node's kernel, or its switch, holds.
type heldState struct {
	node     labs.NodeStatus
	openflow bool
	dir      string
	// before is the name of the snapshot with the state that the agent has programmed.
	before string
	// made are the changes of this state so far.
	made map[string]bool
}

// save takes a snapshot of what the agent has programmed.
func (h *heldState) save(t *testing.T, lab string) {
	t.Helper()
	h.before, h.made = "before"+strconv.FormatInt(time.Now().UnixNano(), 36), map[string]bool{}
	eventually.True(t, "a snapshot of one state", func() bool { // felixctl warns if the state changed while it was read
		h.before += "x"
		out, errs, code := felixctl(t, "snapshot", "save", h.before, "--snapshots", h.dir, "--lab", lab)
		if code != 0 {
			t.Fatalf("%s%s", out, errs)
		}
		return errs == ""
	})
}

func (h *heldState) run(t *testing.T, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "ip", append([]string{"netns", "exec", h.node.Namespace}, args...)...)
	cmd.Env = append(os.Environ(), "OVS_RUNDIR="+h.node.OVSDir)
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %v", args, err)
	}
	return string(out)
}

func (h *heldState) list(t *testing.T) string {
	t.Helper()
	if h.openflow {
		return h.run(t, "ovs-ofctl", "-O", "OpenFlow15", "--no-stats", "dump-flows", "br-int")
	}
	return h.run(t, "nft", "-a", "list", "table", "inet", "felixlike")
}

// purge removes cached flows, which outlive a change of flows: the first purge may skip one that a revalidator holds.
func (h *heldState) purge(t *testing.T) {
	t.Helper()
	for _, command := range []string{"wait", "purge", "purge"} {
		h.run(t, "ovs-appctl", "revalidator/"+command)
	}
}

var (
	ruleHandle  = regexp.MustCompile(`^\t\t(.*) # handle (\d+)$`)
	heading     = regexp.MustCompile(`^\t(chain|set|map) (\S+) {`)
	element     = regexp.MustCompile(`\d+\.\d+\.\d+\.\d+|fd00:10:[0-9a-f:]+`)
	counters    = regexp.MustCompile(`packets \d+ bytes \d+`)
	policyChain = regexp.MustCompile(`^(pin|pout|pods-in|pods-out)-`)
	policyFlow  = regexp.MustCompile(`table=(50|60|90|100),`)
)

// change makes a random change, and says which.
func (h *heldState) change(t *testing.T, r *rand.Rand) string {
	t.Helper()
	var all [][]string
	kind, object := "", ""
	for line := range strings.Lines(h.list(t)) {
		line = strings.TrimRight(line, "\n")
		if h.openflow {
			if policyFlow.MatchString(line) {
				all = append(all, []string{strings.TrimSpace(line), ""})
			}
			continue
		}
		if m := heading.FindStringSubmatch(line); m != nil {
			kind, object = m[1], m[2]
		} else if m := ruleHandle.FindStringSubmatch(line); m != nil && kind == "chain" && (policyChain.MatchString(object) || r.IntN(10) == 0) {
			all = append(all, []string{"delete rule inet felixlike " + object + " handle " + m[2], m[1]})
		} else if kind != "chain" && strings.Contains(line, "elements = {") {
			for _, a := range element.FindAllString(line, -1) {
				all = append(all, []string{"delete element inet felixlike " + object + " { " + a + " }", ""})
			}
		}
	}
	for range 50 {
		one := all[r.IntN(len(all))]
		key := strings.SplitN(one[0], " handle ", 2)[0] + counters.ReplaceAllString(one[1], "")
		if h.made[key] {
			continue
		}
		h.made[key] = true
		if h.openflow {
			match, actions, _ := strings.Cut(one[0], " actions=")
			if r.IntN(3) == 0 && !strings.Contains(actions, "conjunction") {
				h.run(t, "ovs-ofctl", "-O", "OpenFlow15", "add-flow", "br-int", match+",actions=drop")
				h.purge(t)
				return "the action drop for " + match
			}
			match = regexp.MustCompile(`(cookie=[^,]*, ?|duration=[^,]*, ?)`).ReplaceAllString(match, "")
			h.run(t, "ovs-ofctl", "-O", "OpenFlow15", "--strict", "del-flows", "br-int", match)
			h.purge(t)
			return "without " + one[0]
		}
		cmd := exec.CommandContext(t.Context(), "ip", "netns", "exec", h.node.Namespace, "nft", one[0])
		if cmd.Run() == nil { // an element of a set with several parts has another form
			return one[0] + " (" + one[1] + ")"
		}
	}
	t.Fatal("no change is possible")
	return ""
}

// counterexamples asks felixctl prove for first packets between two pods that pass in one of the states only.
func (h *heldState) counterexamples(t *testing.T, what string) (found []prove.Difference) {
	t.Helper()
	path := filepath.Join(h.dir, "after"+strconv.FormatInt(time.Now().UnixNano(), 36))
	// As the snapshot was made, by the same commands.
	native, errs, code := felixctl(t, "snapshot", "show", h.before, "--snapshots", h.dir, "-o", "native")
	if code != 0 {
		t.Fatal(errs)
	}
	after := ""
	for line := range strings.Lines(native) {
		if command, is := strings.CutPrefix(line, "# "); is {
			after += h.run(t, strings.Fields(command)...)
		}
	}
	if err := os.WriteFile(path, []byte(after), 0o600); err != nil {
		t.Fatal(err)
	}
	out, errs, code := felixctl(t, "prove", h.before, path, "--snapshots", h.dir, "-o", "json")
	var answer prove.Result
	if err := json.Unmarshal([]byte(out), &answer); err != nil {
		t.Logf("%s: exit code %d, %s", what, code, errs)
		return nil
	}
	for _, d := range answer.Differences {
		p := d.Packet
		if !h.openflow && (p.In != model.GatewayPort || p.Out != model.GatewayPort) {
			continue // pods do not send it
		}
		if strings.HasPrefix(p.From, "shop/") && strings.HasPrefix(p.To, "shop/") && p.From != p.To && strings.Contains(d.Connection, "new") && p.Protocol == model.TCP && slices.Contains(answered, p.Port) && short(d.A) != short(d.B) {
			found = append(found, d)
		}
	}
	return found
}
