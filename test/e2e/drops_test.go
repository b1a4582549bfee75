package e2e

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/felixlike/felixlike/felixlike/config"
	"github.com/felixlike/felixlike/felixlike/control"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/ovsfwd/policyflows"
	"github.com/felixlike/felixlike/rules"
	"github.com/felixlike/felixlike/test/eventually"
	"github.com/felixlike/felixlike/test/lab"
	"github.com/felixlike/felixlike/test/lab/traffic"
)

// denying isolates x/a by two policies, one of them without rules, and the egress
// of x/b by another.
const denying = onlyFromC + `
---
{kind: NetworkPolicy, metadata: {namespace: x, name: deny-all}, spec: {podSelector: {matchLabels: {pod: a}}}}
---
{kind: NetworkPolicy, metadata: {namespace: x, name: to-a-only}, spec: {podSelector: {matchLabels: {pod: b}}, policyTypes: [Egress],
  egress: [{to: [{podSelector: {matchLabels: {pod: a}}}]}]}}
`

// following is a subscription to a node's denied packets.
type following struct {
	end  func()
	mu   sync.Mutex
	seen []control.Drop
	err  error
}

// follow returns once the dataplane reports.
func follow(t *testing.T, n *lab.Node) *following {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	f := &following{}
	begun, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		err := control.NewClient(n.ControlSocket()).Drops(ctx, func() { close(begun) }, func(d control.Drop) error {
			f.mu.Lock()
			defer f.mu.Unlock()
			f.seen = append(f.seen, d)
			return nil
		})
		f.mu.Lock()
		defer f.mu.Unlock()
		f.err = err
	}()
	f.end = func() { cancel(); <-done }
	t.Cleanup(f.end)
	select {
	case <-begun:
	case <-done:
		t.Fatal(f.err)
	case <-time.After(eventually.Patience):
		t.Fatal("the agent does not begin to report")
	}
	return f
}

func (f *following) drops() []control.Drop {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.seen)
}

// line describes a drop, without time and source port.
func line(d control.Drop) string {
	return fmt.Sprintf("%s > %s %s %s: %s %s", d.From, d.To, d.PortText(), d.Direction, d.By, strings.Join(d.Policies, ","))
}

// send sends a packet from a pod to an address, and waits for no answer.
func send(t *testing.T, l *lab.Lab, from string, to netip.Addr, network string, port uint16, times int) {
	t.Helper()
	err := l.Pod(pod(from)).Namespace().Do(func() error {
		address := netip.AddrPortFrom(to, port).String()
		content := []byte("?")
		if port == 0 {
			address = to.String()
			// An echo request. The kernel adds its checksum if there is a pseudo header.
			if content = []byte{8, 0, 0xf7, 0xff, 0, 0, 0, 0}; to.Is6() {
				content = []byte{128, 0, 0, 0, 0, 0, 0, 0}
			}
		}
		c, err := net.Dial(network, address)
		if err != nil {
			return err
		}
		defer c.Close()
		for range times {
			_, _ = c.Write(content) // an error comes from an answer to the packet before
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestDrops follows the denied packets of a node under each backend.
func TestDrops(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	set(t, l, state(t, threeNodes, denying))
	n := l.Node("node1")
	for _, backend := range backends() {
		t.Run(backend, func(t *testing.T) {
			f := follow(t, n)
			before := time.Now()
			if out, code := onNode(t, n, "backend", "set", backend, "--socket", n.ControlSocket()); code != 0 {
				t.Fatal(out)
			}
			n.Settings().Backend = backend // after a restart, too
			dropsOverHandover(t, n, f, backend, before)
			dropsAreNamed(t, l, n)
			dropsEnd(t, l, n)
			dropsOfAFlood(t, l, n)
		})
	}
}

// dropsOverHandover checks that a change of the backend ends the subscription to the old
// one, and that the agent's history goes on with the new one.
func dropsOverHandover(t *testing.T, n *lab.Node, f *following, backend string, before time.Time) {
	if backend == config.NFTables { // the first, which is in force already
		f.end()
		before = time.Time{}
	} else {
		eventually.True(t, "the change ends the subscription", func() bool {
			f.mu.Lock()
			defer f.mu.Unlock()
			return f.err != nil && strings.Contains(f.err.Error(), "the backend has changed")
		})
	}
	eventually.True(t, "the backend reports to the history", func() bool {
		h, err := control.NewClient(n.ControlSocket()).DropHistory(t.Context())
		return err == nil && h.Fault == "" && h.From.After(before) && reporting(t, n)
	})
}

// dropsAreNamed sends packets that each kind of policy denies, among connections
// that must not be reported.
func dropsAreNamed(t *testing.T, l *lab.Lab, n *lab.Node) {
	to := netip.AddrPortFrom(l.Pod(pod("a")).Address(model.IPv4), 80)
	going := traffic.Start(t.Context(), traffic.Options{
		Streams: []traffic.Route{{Name: "c to a", From: l.Pod(pod("c")).Namespace(), To: to}},
		Opened:  []traffic.Route{{Name: "c to a", From: l.Pod(pod("c")).Namespace(), To: to}},
		Denied:  []traffic.Route{{Name: "d to a", From: l.Pod(pod("d")).Namespace(), To: to}},
	})
	f, other := follow(t, n), follow(t, n)
	all := func() {
		for _, family := range model.Families() {
			icmp := "ip4:icmp"
			if family == model.IPv6 {
				icmp = "ip6:ipv6-icmp"
			}
			for _, to := range []string{"a", "d"} {
				send(t, l, "b", l.Pod(pod(to)).Address(family), "udp", 53, 1)
				send(t, l, "b", l.Pod(pod(to)).Address(family), icmp, 0, 1)
			}
		}
	}
	var want []string
	for _, port := range []string{"udp/53", "icmp echo-request", "icmpv6 echo-request"} {
		want = append(want,
			"x/b > x/a "+port+" ingress: isolation networkpolicy/x/deny-all,networkpolicy/x/only-from-c",
			"x/b > x/d "+port+" egress: isolation networkpolicy/x/to-a-only")
	}
	want = append(want, "x/d > x/a tcp/80 ingress: isolation networkpolicy/x/deny-all,networkpolicy/x/only-from-c")
	for _, f := range []*following{f, other} {
		eventually.True(t, "all denied packets are reported", func() bool {
			var got []string
			for _, d := range f.drops() {
				got = append(got, line(d))
			}
			missing := slices.DeleteFunc(slices.Clone(want), func(w string) bool { return slices.Contains(got, w) })
			if len(missing) > 0 { // a busy switch may lose packets
				all()
				time.Sleep(100 * time.Millisecond)
			}
			return len(missing) == 0
		})
		for _, d := range f.drops() {
			if d.NotShown == 0 && !slices.Contains(want, line(d)) {
				t.Errorf("reported, but not sent, or not denied: %s", line(d))
			}
		}
	}
	if !reporting(t, n) {
		t.Error("nothing reports during the subscription")
	}
	other.end()
	if !reporting(t, n) {
		t.Error("reporting has ended during the subscription")
	}
	f.end()
	eventually.True(t, "the history has what followers have seen", func() bool {
		h, err := control.NewClient(n.ControlSocket()).DropHistory(t.Context())
		found := map[string]bool{}
		for _, m := range h.Minutes {
			for _, f := range m.Flows {
				found[line(f.Drop)] = f.Packets > 0
			}
		}
		missing := slices.ContainsFunc(want, func(w string) bool { return !found[w] })
		if missing { // the history may lose packets: it must not take much of a processor
			all()
		}
		return err == nil && h.Fault == "" && !missing
	})
	sum, err := going.Stop()
	if err != nil || sum.Denied == 0 || sum.Opened == 0 {
		t.Errorf("%s: %v", sum, err)
	}
}

// dropsEnd kills the agent during a subscription: the next one changes nothing, since its history wants the reports.
func dropsEnd(t *testing.T, l *lab.Lab, n *lab.Node) {
	follow(t, n)
	if err := n.KillAgent(); err != nil {
		t.Fatal(err)
	}
	if !reporting(t, n) {
		t.Error("a killed agent left no reporting rules: nothing is tested")
	}
	if err := n.StartAgent(); err != nil {
		t.Fatal(err)
	}
	if err := n.Sync(t.Context()); err != nil {
		t.Fatal(err)
	}
	eventually.True(t, "the history begins again", func() bool {
		h, err := control.NewClient(n.ControlSocket()).DropHistory(t.Context())
		return err == nil && !h.From.IsZero() && reporting(t, n)
	})
	s, err := n.Status(t.Context())
	for stage, writes := range s.Writes {
		if err != nil || writes > 0 {
			t.Errorf("a restart has written %d objects of %s: %v", writes, stage, err)
		}
	}
	expect(t, l, false, "x/b", "x/a", model.TCP, 80)
}

// dropsOfAFlood expects a part of a flood, and the notice that it is a part.
func dropsOfAFlood(t *testing.T, l *lab.Lab, n *lab.Node) {
	const burst = 2000
	f := follow(t, n)
	began, packets := time.Now(), 0
	count := func() (shown, notShown int) {
		for _, d := range f.drops() {
			if d.NotShown > 0 {
				notShown += int(d.NotShown)
			} else {
				shown++
			}
		}
		return shown, notShown
	}
	eventually.True(t, "the flood is reported as incomplete", func() bool {
		// A busy switch may lose most of them before.
		packets += burst
		send(t, l, "b", l.Pod(pod("a")).Address(model.IPv4), "udp", 99, burst)
		time.Sleep(100 * time.Millisecond)
		_, notShown := count()
		return notShown > 0
	})
	f.end()
	took := time.Since(began)
	shown, notShown := count()
	const probes = 20 // denied packets of before, which clients send again
	if most := rules.ReportsPerSecond * (2 + int(took.Seconds())) * 3 / 2; shown == 0 || shown > most || shown+notShown > packets+probes {
		t.Errorf("%d of %d packets in %s are shown, %d not; want at most %d", shown, packets, took, notShown, most)
	}
	t.Logf("%d of %d packets in %s shown, %d not", shown, packets, took, notShown)
}

// reporting reports whether the node has a rule or flow that reports denied packets.
func reporting(t *testing.T, n *lab.Node) bool {
	t.Helper()
	found := shell(t, n, fmt.Sprintf(`(nft list ruleset; iptables-legacy-save; ip6tables-legacy-save) 2>/dev/null | grep -E 'group %d|NFLOG'
		for what in dump-flows dump-meters; do ovs-ofctl -O OpenFlow15 $what unix:%s/%s.mgmt; done 2>/dev/null | grep -E 'controller|meter[:=]%d'`,
		rules.ReportGroup, n.OVSDir(), lab.Bridge, policyflows.ReportMeter))
	return found != ""
}

// TestDropsCommand runs the command.
func TestDropsCommand(t *testing.T) {
	t.Parallel()
	l := newLabWith(t, lab.Config{Backend: config.NFTables})
	set(t, l, state(t, threeNodes, denying))
	n := l.Node("node1")
	ctx, cancel := context.WithCancel(t.Context())
	sent := make(chan struct{})
	from, to := l.Pod(pod("b")).Namespace(), netip.AddrPortFrom(l.Pod(pod("a")).Address(model.IPv4), 53).String()
	go func() {
		defer close(sent)
		for ctx.Err() == nil {
			_ = from.Do(func() error {
				c, err := net.Dial("udp", to)
				if err == nil {
					_, _ = c.Write([]byte("?"))
					err = c.Close()
				}
				return err
			})
			time.Sleep(100 * time.Millisecond)
		}
	}()
	defer func() { cancel(); <-sent }()
	for _, c := range []struct {
		args []string
		code int
		want []string
		// denied is set if the packets are to be seen.
		denied bool
	}{
		{[]string{"--for", "1s"}, 1, []string{"DENIED BY", "x/b   x/a  udp/53  ingress    networkpolicy/x/deny-all, networkpolicy/x/only-from-c"}, true},
		{[]string{"--for", "300ms", "--pod", "x/c"}, 0, []string{"policy has denied nothing"}, false},
		{[]string{"--for", "300ms", "--pod", "x/nosuch"}, 0, []string{"pod x/nosuch is not on node node1", "policy has denied nothing"}, false},
		{[]string{"--since", "15m"}, 1, []string{"PACKETS  LAST", "x/b   x/a  udp/53  ingress    networkpolicy/x/deny-all, networkpolicy/x/only-from-c", "not all that was denied before"}, true},
		{[]string{"--since", "15m", "--pod", "x/c"}, 0, []string{"policy has denied nothing"}, false},
		{[]string{"--since", "1m", "--follow"}, 2, []string{"none of the others can be"}, false},
		{[]string{"--since", "-1m"}, 2, []string{"is not positive"}, false},
		{[]string{"--for", "300ms", "-o", "json"}, 1, []string{`"by":"isolation","policies":["networkpolicy/x/deny-all","networkpolicy/x/only-from-c"]`, `"packets":`}, true},
		{[]string{"--for", "500ms", "--follow"}, 0, []string{"x/b  ", "udp/53"}, true},
		{[]string{"--direction", "sideways"}, 2, []string{"must be ingress or egress"}, false},
		{[]string{"--pod", "x"}, 2, []string{"must be namespace/name"}, false},
		{[]string{"-o", "xml"}, 2, []string{"is not text, json, yaml"}, false},
	} {
		wrong := func() string {
			out, code := onNode(t, n, append([]string{"drops", "--socket", n.ControlSocket()}, c.args...)...)
			if code != c.code {
				return fmt.Sprintf("drops %v: exit code %d, want %d:\n%s", c.args, code, c.code, out)
			}
			for _, want := range c.want {
				if !strings.Contains(out, want) {
					return fmt.Sprintf("drops %v: want %q in\n%s", c.args, want, out)
				}
			}
			return ""
		}
		found := wrong()
		// On a busy machine a short time may pass without a packet.
		for tries := 1; found != "" && c.denied && tries < 10; tries++ {
			t.Logf("once more: %s", found)
			found = wrong()
		}
		if found != "" {
			t.Error(found)
		}
	}
}
