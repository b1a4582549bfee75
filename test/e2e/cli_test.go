package e2e

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/felixlike/felixlike/cmd/felixctl/labs"
	"github.com/felixlike/felixlike/test/eventually"
	"github.com/felixlike/felixlike/test/lab"
)

// felixctl runs the command and returns its output and exit code.
func felixctl(t *testing.T, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	var out, errs bytes.Buffer
	cmd := exec.Command(filepath.Join(buildDir, "felixctl"), args...)
	cmd.Stdout, cmd.Stderr = &out, &errs
	var exit *exec.ExitError
	if err := cmd.Run(); err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return out.String(), errs.String(), cmd.ProcessState.ExitCode()
}

// liveIsWanted fails the test if felixctl diff finds that a node's kernel or switch lacks something that the agent wants, or
// has more.
func liveIsWanted(t *testing.T, lab, node string) {
	t.Helper()
	if out, errs, code := felixctl(t, "diff", "live", "wanted", "--lab", lab, "--node", node); code != 0 {
		t.Errorf("%s: felixctl diff finds differences between live and wanted, exit code %d\n%s%s", node, code, out, errs)
	}
}

// labNamed returns a function that runs `felixctl lab` on one lab and fails the
// test on another exit code than wanted.
func labNamed(t *testing.T, name string) func(wantCode int, args ...string) string {
	return func(wantCode int, args ...string) string {
		t.Helper()
		out, errs, code := felixctl(t, append([]string{"lab", "--name", name}, args...)...)
		if code != wantCode {
			t.Fatalf("felixctl lab %v: exit code %d, want %d\n%s%s", args, code, wantCode, out, errs)
		}
		return out
	}
}

func file(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "objects.yaml")
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

// left returns the namespaces and processes of a lab.
func left(t *testing.T, name string) []string {
	t.Helper()
	found, err := filepath.Glob("/run/netns/flx-" + name + "-*")
	if err != nil {
		t.Fatal(err)
	}
	processes, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range processes {
		text, err := os.ReadFile(p)
		if err == nil && bytes.Contains(text, []byte("/felixlike-lab/"+name+"/")) {
			found = append(found, string(bytes.ReplaceAll(text, []byte{0}, []byte{' '})))
		}
	}
	if _, err := os.Stat("/run/felixlike-lab/" + name); err == nil {
		found = append(found, "/run/felixlike-lab/"+name)
	}
	return found
}

// upWithDescriptor starts a lab by a caller with a pipe. None of the lab's daemons keeps it open.
func upWithDescriptor(t *testing.T, name, manifest string) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	cmd := exec.Command(filepath.Join(buildDir, "felixctl"), "lab", "up", "--name", name, "-f", manifest)
	cmd.ExtraFiles = []*os.File{w}
	out, err := cmd.CombinedOutput()
	if err := errors.Join(err, w.Close()); err != nil {
		t.Fatalf("lab up: %v\n%s", err, out)
	}
	if err := r.SetReadDeadline(time.Now().Add(10 * time.Second)); err != nil {
		t.Fatal(err)
	}
	if n, err := r.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("a daemon of the lab keeps a pipe of the caller: %d bytes, %v", n, err)
	}
}

// TestCommands uses a lab as people do, crashes its supervisor and cleans up.
func TestCommands(t *testing.T) {
	needLab(t)
	name := fmt.Sprintf("cli-%d", os.Getpid())
	ctl := labNamed(t, name)
	t.Cleanup(func() { ctl(0, "down", "--ignore-not-found") })
	ctl(2, "down")
	ctl(2, "up", "--traffic-mode", "networkPolicyOnly") // no other CNI plugin would carry packets
	ctl(2, "up", "--set", "snat=openflow")              // nftables does not see packets in the bridge
	upWithDescriptor(t, name, file(t, threeNodes))
	ctl(2, "up")
	if out := ctl(0, "status"); !strings.Contains(out, "x/a") || strings.Count(out, "programmed") != 4 {
		t.Errorf("status:\n%s", out)
	}
	ctl(0, "probe", "x/b", "x/a", "tcp/80")
	ctl(0, "apply", "-f", file(t, onlyFromC))
	ctl(1, "probe", "x/b", "x/a", "tcp/80")
	eventually.True(t, "the status of the whole lab", func() bool {
		out, _, code := felixctl(t, "status", "--lab", name)
		return code == 0 && strings.Contains(out, "3 nodes, 3 ready")
	})
	eventually.True(t, "the policies of the whole lab", func() bool {
		out, _, code := felixctl(t, "policies", "--lab", name, "-o", "name")
		return code == 0 && strings.TrimSpace(out) == "networkpolicy/x/only-from-c"
	})
	eventually.True(t, "the denied packet in the history of the whole lab", func() bool {
		out, _, code := felixctl(t, "drops", "--since", "10m", "--lab", name)
		return code == 1 && strings.Contains(out, "x/only-from-c")
	})
	page := pagesOf(t, "--lab", name)
	sent := func(from, to, verdict string) bool {
		text := page("/why", url.Values{"from": {from}, "to": {to}, "port": {"80/tcp"}, "family": {"4"}})
		return strings.Contains(text, "One packet was sent: <b>"+verdict+"</b>")
	}
	if text := page("/why?from=x/b&to=x/a&port=80/tcp", nil); !strings.Contains(text, ">Send one packet<") {
		t.Errorf("the page of a trace cannot send:\n%s", text)
	}
	if !sent("x/b", "x/a", "denied") {
		t.Error("the page of a trace does not send a packet that is denied")
	}
	// A busy machine may take more than a second to answer.
	eventually.True(t, "a packet that the page sends passes", func() bool { return sent("x/c", "x/a", "allowed") })
	long := "long-" + strings.Repeat("x", 248)
	ctl(0, "apply", "-f", file(t, fmt.Sprintf("{kind: Pod, metadata: {namespace: x, name: %[1]s}, spec: {nodeName: node1, containers: [{name: c, ports: [{containerPort: 80}]}]}}\n"+
		"---\n{kind: NetworkPolicy, metadata: {namespace: x, name: %[1]s}, spec: {podSelector: {matchLabels: {none: such}}}}", long)))
	ctl(0, "probe", "x/c", "x/"+long, "tcp/80")
	badCIDR := file(t, "kind: NetworkPolicy\nmetadata: {namespace: x, name: bad}\nspec: {podSelector: {matchLabels: {pod: c}}, ingress: [{from: [{ipBlock: {cidr: nonsense}}]}]}")
	if _, errs, code := felixctl(t, "lab", "--name", name, "apply", "-f", badCIDR); code != 1 || !strings.Contains(errs, "x/bad") || !strings.Contains(errs, "nonsense") {
		t.Errorf("apply of a policy that closes its pod: exit code %d\n%s", code, errs)
	}
	ctl(2, "apply", "--prune", "-f", file(t, "{kind: Service, metadata: {name: other}}"))
	ctl(0, "apply", "--prune", "-f", file(t, threeNodes+"---"+onlyFromC))
	ctl(0, "probe", "x/c", "x/a", "tcp/80", "--family", "6")
	ctl(2, "probe", "x/nobody", "x/a", "tcp/80")
	ctl(2, "probe", "x/c", "x/a", "icmp/80")
	if out := ctl(0, "matrix", "--with", "ip:192.0.2.1,node:node2"); !strings.Contains(out, "node:node2") {
		t.Errorf("matrix:\n%s", out)
	}
	if out := ctl(0, "matrix", "-o", "json", "--port", "tcp/80"); !strings.Contains(out, `"expected": false`) || !strings.Contains(out, `"protocol": "tcp"`) {
		t.Errorf("matrix as JSON:\n%s", out)
	}
	rulesShown(t, ctl)
	statusOfHungAgent(t, ctl)
	if out := ctl(0, "list"); !regexp.MustCompile(name + ` +up +nftables +3 +4 `).MatchString(out) {
		t.Errorf("list:\n%s", out)
	}
	if out := ctl(0, "exec", "x/a", "--", "ip", "-4", "-o", "address", "show", "eth0"); !strings.Contains(out, "inet ") {
		t.Errorf("exec in a pod:\n%s", out)
	}
	ctl(3, "exec", "node1", "--", "sh", "-c", "exit 3")
	ctl(2, "exec", "x/nobody", "--", "true")
	before := labStatus(t, ctl).Nodes[1].AgentPID
	ctl(0, "restart", "node2")
	if after := labStatus(t, ctl).Nodes[1].AgentPID; after == before || after == 0 {
		t.Errorf("agent of node2: pid %d before its restart, %d after it", before, after)
	}
	if err := unix.Kill(labStatus(t, ctl).Nodes[1].AgentPID, unix.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	ctl(0, "restart", "node2")
	ctl(2, "restart", "node9")

	supervisor := supervisorOf(t, name)
	if err := unix.Kill(supervisor, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	eventually.True(t, "the supervisor ends", func() bool { return unix.Kill(supervisor, 0) != nil || zombie(supervisor) })
	if len(left(t, name)) < 10 {
		t.Errorf("the crash should leave namespaces and daemons: %v", left(t, name))
	}
	ctl(2, "status")
	if out := ctl(0, "list"); !regexp.MustCompile(name + ` +left over `).MatchString(out) {
		t.Errorf("list after a crash:\n%s", out)
	}
	if out := ctl(0, "logs", "node1", "--tail", "1"); strings.Count(out, "\n") != 1 {
		t.Errorf("the last line of a log:\n%s", out)
	}
	ctl(2, "logs", "node9")
	for range 2 {
		ctl(0, "down", "--ignore-not-found")
		if found := left(t, name); len(found) > 0 {
			t.Fatalf("left after down: %v", found)
		}
	}
	// A lab of the same name comes up after a crash without a down, too.
	ctl(0, "up", "--nodes", "1", "--set", "serviceProxy=full", "--set", "resyncInterval=1h")
	if out, _, _ := felixctl(t, "services", "--lab", name, "-o", "json"); !strings.Contains(out, `"proxy": true`) {
		t.Errorf("services of a lab with serviceProxy full: %s", out)
	}
	status, err := labs.NewClient(labs.DefaultRoot, name).Status(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if args, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", status.Nodes[0].AgentPID)); err != nil || !strings.Contains(string(args), "--resync-interval\x001h") {
		t.Errorf("the agent runs with %q, %v", args, err)
	}
	if err := unix.Kill(supervisorOf(t, name), unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	eventually.True(t, "the lab comes up again", func() bool {
		_, _, code := felixctl(t, "lab", "up", "--name", name, "--nodes", "1")
		return code == 0
	})
}

// rulesShown asks for a pod's rules under each kind of backend, with the socket
// that status names.
func rulesShown(t *testing.T, ctl func(int, ...string) string) {
	t.Helper()
	status := labStatus(t, ctl)
	for _, c := range []struct {
		backend string
		want    []string
	}{
		{"iptables-nft", []string{"-p tcp", "isolated ingress"}},
		{"iptables-legacy", []string{"-p tcp", "isolated ingress"}},
		{"openflow", []string{"tcp6,tp_dst=80", "tcp,tp_dst=80", "table=100"}},
		{"nftables", []string{"tcp dport 80", "isolated ingress"}},
	} {
		for _, n := range status.Nodes {
			if out, errs, code := felixctl(t, "backend", "set", c.backend, "--socket", n.ControlSocket); code != 0 {
				t.Fatalf("%s: %s%s", c.backend, out, errs)
			}
		}
		out := ctl(0, "rules", "x/a")
		for _, want := range append(c.want, "networkpolicy/x/only-from-c ingress[0]", "x/c") {
			if !strings.Contains(out, want) {
				t.Errorf("%s: rules of x/a without %q:\n%s", c.backend, want, out)
			}
		}
	}
	ctl(2, "rules", "x/nobody")
}

// probed runs the DaemonSet's probe of an agent and checks its exit code.
func probed(t *testing.T, what, socket string, want int) {
	t.Helper()
	cmd := exec.Command(filepath.Join(buildDir, lab.AgentProgram), "probe", what, "--node-name", "node1", "--run-dir", filepath.Dir(socket))
	out, err := cmd.CombinedOutput()
	if cmd.ProcessState == nil || cmd.ProcessState.ExitCode() != want {
		t.Errorf("probe %s: %v, want exit code %d\n%s", what, err, want, out)
	}
}

// statusOfHungAgent wants an answer of all others while an agent hangs.
func statusOfHungAgent(t *testing.T, ctl func(int, ...string) string) {
	t.Helper()
	node := labStatus(t, ctl).Nodes[0]
	pid := node.AgentPID
	probed(t, "live", node.ControlSocket, 0)
	probed(t, "ready", node.ControlSocket, 0)
	if err := unix.Kill(pid, unix.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	eventually.True(t, "the agent of node1 stands still", func() bool { return stopped(t, pid) })
	probed(t, "live", node.ControlSocket, 2)
	out := ctl(1, "status")
	if err := unix.Kill(pid, unix.SIGCONT); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(out, "node1: the agent does not answer within") || strings.Count(out, "yes") != 2 {
		t.Errorf("status while the agent of node1 hangs:\n%s", out)
	}
}

// stopped reports whether all threads of a process are.
func stopped(t *testing.T, pid int) bool {
	t.Helper()
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
	if err != nil || len(threads) == 0 {
		t.Fatalf("process %d: %v", pid, err)
	}
	return !slices.ContainsFunc(threads, func(path string) bool {
		text, err := os.ReadFile(path)
		return err != nil || !bytes.Contains(text, []byte(") T "))
	})
}

func labStatus(t *testing.T, ctl func(int, ...string) string) (s labs.Status) {
	t.Helper()
	if err := json.Unmarshal([]byte(ctl(0, "status", "-o", "json")), &s); err != nil {
		t.Fatal(err)
	}
	return s
}

// supervisorOf finds the supervisor's process by its command line.
func supervisorOf(t *testing.T, name string) int {
	t.Helper()
	processes, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range processes {
		text, err := os.ReadFile(p)
		if err == nil && bytes.Contains(text, []byte("supervise\x00--name\x00"+name+"\x00")) {
			var pid int
			if _, err := fmt.Sscanf(p, "/proc/%d/cmdline", &pid); err != nil {
				t.Fatal(err)
			}
			return pid
		}
	}
	t.Fatalf("lab %s has no supervisor", name)
	return 0
}

func zombie(pid int) bool {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err == nil && bytes.Contains(text, []byte(") Z "))
}

// TestVerifyCommand checks the output and the exit codes.
func TestVerifyCommand(t *testing.T) {
	needLab(t)
	line := `{"suite":"s","case":"c","step":1,"steps":1,"nodes":[{"name":"n","ip":"192.168.50.11","podCIDR":"10.10.0.0/24"}],` +
		`"namespaces":[{"name":"x"}],"pods":[{"ns":"x","name":"a","ip":"10.10.0.9","node":"n","ports":[{"port":80,"proto":"TCP"}]}],"policies":[],` +
		`"probes":[{"from":"node:n","to":"x/a","proto":"TCP","port":80EXPECT},{"from":"ip:192.0.2.7","to":"x/a","proto":"TCP","port":81}]}`
	for _, c := range []struct {
		expect string
		code   int
	}{{"", 0}, {`,"expect":true`, 0}, {`,"expect":false`, 1}} {
		path := file(t, strings.Replace(line, "EXPECT", c.expect, 1))
		out, errs, code := felixctl(t, "lab", "verify", "--cases", path, "--timeout", "300ms")
		if want := `{"suite":"s","case":"c","step":1,"got":"10"}` + "\n"; out != want || code != c.code {
			t.Errorf("expect %q: exit code %d, printed %q\n%s", c.expect, code, out, errs)
		}
		late := strings.Contains(errs, "the agent was programming all the while") || strings.Contains(errs, "the proof takes longer than its timeout")
		for _, want := range []string{"live and wanted: proved equal for all packets in 1 of 1 comparison\n", "wanted and backend:iptables: proved equal for all packets in 1 of 1 comparison\n", "wanted and backend:openflow: proved equal for all packets in 0 of 1 comparison\n", "  not proved: "} {
			if !strings.Contains(errs, want) && !late {
				t.Errorf("expect %q: without %q\n%s", c.expect, want, errs)
			}
		}
		if wantTable := c.code == 1; strings.Contains(errs, "EXPECTED") != wantTable {
			t.Errorf("expect %q: table of disagreements, want %v:\n%s", c.expect, wantTable, errs)
		}
	}
	for _, args := range [][]string{{}, {"--cases", "/nonexistent"}, {"--cases", file(t, "{}")}, {"--cases", file(t, line), "--family", "5"}} {
		if _, _, code := felixctl(t, append([]string{"lab", "verify"}, args...)...); code != 2 {
			t.Errorf("verify %v: exit code %d, want 2", args, code)
		}
	}
}

// TestDemo runs the command of `make demo`.
func TestDemo(t *testing.T) {
	needLab(t)
	for _, family := range []string{"4", "6"} {
		out, errs, code := felixctl(t, "lab", "demo", "--family", family)
		if code != 0 || !strings.Contains(out, "Every probe went as the policies say.") || strings.Contains(out, "\x1b") {
			t.Errorf("IPv%s: exit code %d\n%s%s", family, code, out, errs)
		}
	}
}
