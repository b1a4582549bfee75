package backend

import (
	"context"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/felixlike/felixlike/test/tablestest"
)

// forwardLab is a router between a pod behind flx-gw0 and a host outside.
type forwardLab struct{ router, pod, outside tablestest.Namespace }

func newForwardLab(t *testing.T, tools ...string) forwardLab {
	t.Helper()
	l := forwardLab{tablestest.NewNamespace(t, append(tools, "nft", "ping", "sysctl")...), tablestest.NewNamespace(t), tablestest.NewNamespace(t)}
	l.router.Run(t, "sysctl", "-qw", "net.ipv4.ip_forward=1", "net.ipv6.conf.all.forwarding=1")
	for i, ns := range []tablestest.Namespace{l.pod, l.outside} {
		name, four, six := []string{"flx-gw0", "up0"}[i], []string{"10.10.0.", "192.168.50."}[i], []string{"fd00:1::", "fd00:2::"}[i]
		l.router.Run(t, "ip", "link", "add", name, "up", "type", "veth", "peer", "name", "eth0", "netns", ns.Name)
		ns.Run(t, "ip", "link", "set", "eth0", "up")
		for _, prefix := range []string{four, six} {
			bits, more := "/24", []string{}
			if prefix == six {
				bits, more = "/64", []string{"nodad"}
			}
			l.router.Run(t, append([]string{"ip", "addr", "add", prefix + "1" + bits, "dev", name}, more...)...)
			ns.Run(t, append([]string{"ip", "addr", "add", prefix + "2" + bits, "dev", "eth0"}, more...)...)
			ns.Run(t, "ip", "route", "add", "default", "via", prefix+"1")
		}
	}
	l.router.Run(t, "ip", "route", "add", "default", "via", "192.168.50.2")
	return l
}

// reach checks whether the pod has an answer from outside, in both families.
func (l forwardLab) reach(t *testing.T, when string, want bool) {
	t.Helper()
	for _, to := range []string{"192.168.50.2", "fd00:2::2"} {
		ping := func() ([]byte, error) {
			return exec.Command("ip", "netns", "exec", l.pod.Name, "ping", "-c", "2", "-i", "0.2", "-W", "1", to).CombinedOutput()
		}
		out, err := ping()
		for deadline := time.Now().Add(20 * time.Second); want && err != nil && time.Now().Before(deadline); { // a link may have to come up, and a neighbour to be found
			out, err = ping()
		}
		if (err == nil) != want {
			t.Errorf("%s: the pod reaches %s: %v\n%s", when, to, err == nil, out)
		}
	}
}

// TestForwards: with FORWARD of either variant of iptables on DROP, packets of pods pass it behind the backend's own chain, and a rule of an
// administrator that drops some packets stays in force. Without the rules the chain is named.
func TestForwards(t *testing.T) {
	for _, variant := range []string{"legacy", "nft"} {
		t.Run(variant, func(t *testing.T) {
			four, six := "iptables-"+variant, "ip6tables-"+variant
			l := newForwardLab(t, four, six)
			c := Config{Node: "n1", NetNS: l.router.FD}
			on, dropping := Forwards(c, true)
			run(t, on)
			l.reach(t, "at first", true)
			both := func(args ...string) {
				for _, tool := range []string{four, six} {
					l.router.Run(t, append([]string{tool}, args...)...)
				}
			}
			both("-N", "flx-passed")
			both("-A", "FORWARD", "-j", "flx-passed")
			both("-A", "FORWARD", "-p", "tcp", "-j", "DROP")
			on.Invalidate()
			if did := run(t, on); did.Writes != 0 {
				t.Errorf("%d writes although FORWARD drops some packets only", did.Writes)
			}
			both("-P", "FORWARD", "DROP")
			l.reach(t, "policy drop", false)
			on.Invalidate()
			if did := run(t, on); did.Writes != 2 {
				t.Errorf("%d writes", did.Writes)
			}
			l.reach(t, "with the rules", true)
			listed := strings.Split(l.router.Run(t, four, "-S", "FORWARD"), "\n")
			if len(listed) < 5 || !strings.Contains(listed[1], "flx-passed") || !strings.Contains(listed[2], "-i flx-gw0") || !strings.Contains(listed[3], "-o flx-gw0") {
				t.Errorf("the rules are not behind the backend's:\n%s", strings.Join(listed, "\n"))
			}
			on.Invalidate()
			if did := run(t, on); did.Writes != 0 {
				t.Errorf("again: %d writes", did.Writes)
			}
			if found := dropping(); len(found) > 0 {
				t.Errorf("named: %q", found)
			}
			both("-D", "FORWARD", "-j", "flx-passed")
			off, dropping := Forwards(c, false)
			run(t, off)
			l.reach(t, "the setting is off", false)
			if found := dropping(); len(found) != 2 || !strings.Contains(found[0], "FORWARD") {
				t.Errorf("named: %q", found)
			}
			both("-P", "FORWARD", "ACCEPT")
			both("-A", "FORWARD", "-j", "REJECT")
			again, dropping := Forwards(c, true)
			if run(t, again); len(dropping()) > 0 {
				t.Errorf("named: %q", dropping())
			}
			l.reach(t, "a rule rejects the rest", true)
			if err := RemoveBeside(t.Context(), l.router.FD); err != nil {
				t.Error(err)
			}
			if text := l.router.Run(t, four+"-save"); strings.Contains(text, "felixlike") {
				t.Errorf("left after the removal:\n%s", text)
			}
		})
	}
}

// TestForwardsOfNFTables: a chain of nf_tables at FORWARD that drops all packets of pods on a way is named with the rules to add, and others are not. Chains that
// come and change are noticed at once.
func TestForwardsOfNFTables(t *testing.T) {
	for _, test := range []struct {
		rules   string
		dropped bool
	}{
		{"policy drop;", true},
		{"policy drop; ct state established,related accept; iifname \"docker0\" accept;", true},
		{"policy drop; iifname \"flx-gw0\" accept;", true}, // answers
		{"policy drop; ct state established accept; iifname \"flx-gw0\" accept;", false},
		{"policy accept; ip saddr 10.10.0.9 drop;", false},
		{"policy accept; reject;", true},
	} {
		t.Run(test.rules, func(t *testing.T) {
			l := newForwardLab(t)
			s, dropping := Forwards(Config{Node: "n1", NetNS: l.router.FD}, true)
			noticed := watched(t, s)
			noticed("the start of the watch")
			if run(t, s); len(dropping()) > 0 {
				t.Fatalf("named: %q", dropping())
			}
			l.router.Feed(t, "table inet wall {\nchain passing {\ntype filter hook forward priority 0; "+strings.ReplaceAll(test.rules, ";", ";\n")+"}\n}\n", "nft", "-f", "-")
			noticed("a new chain")
			run(t, s)
			for test.dropped && len(dropping()) == 0 { // it was an older notice
				noticed("a new chain")
				run(t, s)
			}
			found := dropping()
			if (len(found) == 1) != test.dropped || len(found) > 0 && !strings.Contains(found[0], "chain passing of table inet wall") {
				t.Fatalf("named: %q", found)
			}
			if l.reach(t, "before", !test.dropped); !test.dropped {
				return
			}
			_, commands, _ := strings.Cut(found[0], "of pods: ")
			for _, command := range strings.Split(commands, "; ") {
				l.router.Run(t, strings.Fields(command)...)
			}
			l.reach(t, "after "+commands, true)
			for len(dropping()) > 0 { // a notice may come between two commands
				noticed("new rules")
				run(t, s)
			}
			l.router.Run(t, "nft", "flush", "chain", "inet", "wall", "passing")
			l.router.Run(t, "nft", "add", "rule", "inet", "wall", "passing", "drop")
			for len(dropping()) == 0 {
				noticed("a rule that drops")
				run(t, s)
			}
			l.router.Run(t, "nft", "delete", "table", "inet", "wall")
			for len(dropping()) > 0 {
				noticed("a chain that has gone")
				run(t, s)
			}
		})
	}
}

// watched watches a stage until the test ends. The function waits for a notice.
func watched(t *testing.T, s Stage) (noticed func(what string)) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	notices, done := make(chan struct{}, 1), make(chan error, 1)
	go func() {
		done <- s.Watch(ctx, func() {
			select {
			case notices <- struct{}{}:
			default:
			}
		})
	}()
	t.Cleanup(func() { cancel(); <-done })
	return func(what string) {
		t.Helper()
		select {
		case <-notices:
		case err := <-done:
			t.Fatalf("%s: the watch has ended: %v", what, err)
		case <-time.After(30 * time.Second):
			t.Fatalf("%s is not noticed", what)
		}
	}
}
