package ui

import (
	"bytes"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/spf13/cobra"

	"github.com/felixlike/felixlike/cmd/felixctl/agentflag"
	"github.com/felixlike/felixlike/felixlike/control"
)

// shows asks for a page and checks its text.
func shows(t *testing.T, a *agents, path string, wants, nots []string) {
	t.Helper()
	s := serve(t, a)
	var text string
	if path != "once" {
		_, text = s.do(t, s.request(t, http.MethodGet, path, nil))
	} else {
		var file bytes.Buffer
		if err := writeReport(t.Context(), &file, s.last0(t)); err != nil {
			t.Fatal(err)
		}
		text = file.String()
	}
	for _, want := range wants {
		if !strings.Contains(text, want) {
			t.Errorf("%s lacks %q:\n%s", path, want, text)
		}
	}
	for _, not := range nots {
		if strings.Contains(text, not) {
			t.Errorf("%s has %q:\n%s", path, not, text)
		}
	}
}

// TestStoppedAgent: an agent that takes a connection and says nothing costs its time, and no more.
func TestStoppedAgent(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "socket")
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	target := &agentflag.Target{}
	c := &cobra.Command{}
	target.Flags(c)
	if err := c.Flags().Set("socket", path); err != nil {
		t.Fatal(err)
	}
	answers, err := local{target, func() []*cobra.Command { return nil }, nil, 50 * time.Millisecond}.Ask(t.Context(), nil, nil, CommandName, "data")
	if err != nil || len(answers) != 1 || answers[0].Fault != "no answer within 50ms" {
		t.Errorf("%+v, %v", answers, err)
	}
}

// TestNothingDeniedIsKnown: a page says that nothing was denied only if all nodes have said so.
func TestNothingDeniedIsKnown(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(*data)
		want   string
	}{
		"no history":     {func(d *data) { d.Drops = control.DropHistory{Fault: "no room"} }, "no denied packet is known: no room"},
		"a gap":          {func(d *data) { d.Drops.From = time.Now().Add(-time.Minute) }, "not all that was denied before"},
		"not reported":   {func(d *data) { d.Drops.Fault = "no room" }, "not reported now: no room"},
		"without report": {func(d *data) { d.Drops.Minutes = []control.DropMinute{{Begin: time.Now(), NotShown: 7}} }, "7 more packets"},
	} {
		t.Run(name, func(t *testing.T) {
			a := shop()
			delete(a.data, "n2")
			a.nodes = a.nodes[:1]
			a.change("n1", func(d *data) { d.Drops.Minutes = nil })
			for _, path := range []string{"/denied", "/pod/shop/web", "once"} {
				shows(t, a, path, []string{"Policy has denied nothing."}, nil)
			}
			a.change("n1", c.change)
			for _, path := range []string{"/denied", "/pod/shop/web", "once"} {
				shows(t, a, path, []string{c.want}, []string{"Policy has denied nothing.", "<p>None.</p>\n</main>"})
			}
		})
	}
}

// TestPodOfNoAnswer: a page does not say that no policy isolates a pod which no node has programmed, nor believes a node about pods of others.
func TestPodOfNoAnswer(t *testing.T) {
	t.Parallel()
	a := shop()
	isolated := []string{"isolated for ingress by<dd>not known", "isolated for egress by<dd>not known"}
	shows(t, a, "/pod/shop/web", isolated, []string{">nothing"}) // n1 does not have it
	web := control.Endpoint{Namespace: "shop", Name: "web", State: control.EndpointPending}
	a.change("n1", func(d *data) { d.Status.Endpoints = append(d.Status.Endpoints, web) })
	shows(t, a, "/pod/shop/web", isolated, []string{">nothing"})
	a.change("n1", func(d *data) { d.Status.Endpoints[1].State = control.EndpointProgrammed })
	shows(t, a, "/pod/shop/web", []string{"isolated for ingress by<dd>nothing"}, nil)
	a.objects.Pods[0].Spec.NodeName = "n2"
	shows(t, a, "/pod/shop/web", append(isolated, "its node does not answer"), []string{">nothing"})

	a.objects.Pods[0].Spec.NodeName, a.objects.Pods[0].Status = "", corev1.PodStatus{Phase: corev1.PodPending}
	shows(t, a, "/pod/shop/web", []string{"on no node yet", "the pod has no address", "app=web"}, []string{"Nobody"})
	a.objects.Pods[0].Spec.NodeName, a.objects.Pods[0].Spec.HostNetwork = "n1", true
	a.change("n1", func(d *data) { d.Status.Endpoints = nil })
	shows(t, a, "/pod/shop/web", []string{"in the network of its node"}, []string{"does not answer"})
}

// TestNotReady: a cluster whose objects or nodes are not known is not ready, and has no number of pods.
func TestNotReady(t *testing.T) {
	t.Parallel()
	a := someAgents(control.Objects{})
	shows(t, a, "/", []string{"<b>Ready</b> 1 of 1 node", "0 pods"}, nil)
	for name, objects := range map[string]string{
		"no JSON": `{"pods":7}`, "null": "null", "a null pod": `{"inSync":true,"pods":[null]}`, "a null policy": `{"inSync":true,"antrea":{"networkPolicies":[null]}}`,
		"a null deep inside": `{"inSync":true,"clusterNetworkPolicies":[{"spec":{"ingress":[{"from":[{"pods":{"podSelector":{"matchExpressions":null}}}]}]}},null]}`,
	} {
		a.change("n1", func(d *data) { d.Objects = []byte(objects) })
		for _, path := range []string{"/", "once"} {
			t.Log(name)
			shows(t, a, path, []string{"Degraded</b> 1 of 1 node", "not known: objects of n1"}, []string{"<b>Ready", "0 pods", "0 policy"})
		}
	}
	a.nodes = nil
	shows(t, a, "/", []string{"<b>NO ANSWER</b> 0 of 0"}, []string{"<b>Ready"})
	shows(t, a, "/why?from=shop/web&to=shop/db&port=80/tcp", []string{"no node answers"}, nil)
}

// TestAnotherNode: an agent that calls itself another node is not believed.
func TestAnotherNode(t *testing.T) {
	t.Parallel()
	a := shop()
	a.data["n2"] = a.data["n1"]
	shows(t, a, "/", []string{"<td>n2<td", `the agent says that it is &#34;n1&#34;`, "1 of 2 nodes"}, nil)
}

// TestObjectsOfReady: the objects come from a node that is ready.
func TestObjectsOfReady(t *testing.T) {
	t.Parallel()
	a := shop()
	d := a.data["n1"]
	d.Status.Node = "n2"
	a.data["n2"] = d
	a.change("n1", func(d *data) { d.Status.LastApply.Error = "no space" })
	serve(t, a).get(t, "/")
	if last := a.asked[len(a.asked)-1]; last[0] != "n2" {
		t.Errorf("asked %q", last)
	}
}

// TestWhatIfOfAllNodes: addresses of Services, sockets and warnings of each node are on the page.
func TestWhatIfOfAllNodes(t *testing.T) {
	t.Parallel()
	a := shop()
	d := a.data["n1"]
	d.Status.Node = "n2"
	a.data["n2"] = d
	const of = `{"policies":[],"verdicts":[],`
	service := `"services":[{"service":"shop/web","address":"nodePort tcp/30080","families":["IPv4"],"from":["anyone outside"],"nodes":["n1"],"becomes":"denied","because":"it closes it"}],`
	a.answers["preview"] = of + service + `"connectionsLookedAt":true}`
	a.answers["preview n2"] = of + `"sockets":[{"protocol":"tcp","local":"10.0.0.2:2379","process":"etcd","uid":0,"peers":["node:n1"],"becomes":"denied","because":"it closes it"}],"warnings":["a pod closes"]}`
	page := func() string {
		s := serve(t, a)
		answer, text := s.do(t, s.request(t, http.MethodPost, whatIfPath, url.Values{"yaml": {"kind: NetworkPolicy"}}))
		if answer.StatusCode != http.StatusOK {
			t.Fatal(answer.Status)
		}
		return text
	}
	text := page()
	for _, want := range []string{"<td>shop/web<td>nodePort tcp/30080", "<td>n2<td>etcd", "10.0.0.2:2379 listens", "n2: a pod closes", "not looked at on n2", "None is known."} {
		if !strings.Contains(text, want) {
			t.Errorf("it lacks %q:\n%s", want, text)
		}
	}
	a.answers["preview"], a.answers["preview n2"] = "none", "broken"
	if text := page(); !strings.Contains(text, "n1: the answer cannot be read") || !strings.Contains(text, "n2: the answer cannot be read") {
		t.Errorf("it does not say who did not answer:\n%s", text)
	}
	delete(a.answers, "preview n2")
	a.answers["preview"] = of + `"noServices":true,"connectionsLookedAt":true}`
	if text := page(); !strings.Contains(text, "Not judged: no Services are known") {
		t.Errorf("it does not say that Services are not judged:\n%s", text)
	}
}

// TestFormTwice: the text of a form, which a browser sends with CRLF, comes back as it can be sent again. One that is too large is refused.
func TestFormTwice(t *testing.T) {
	t.Parallel()
	a := shop()
	a.answers["preview"] = previewedJSON
	s := serve(t, a)
	yaml := "kind: NetworkPolicy\r\nspec: {}"
	for range 2 {
		_, text := s.do(t, s.request(t, http.MethodPost, whatIfPath, url.Values{"yaml": {yaml}}))
		_, text, _ = strings.Cut(text, `spellcheck="false">`)
		text, _, _ = strings.Cut(text, "</textarea>")
		if text != "kind: NetworkPolicy\nspec: {}" || a.stdin != text {
			t.Errorf("the page has %q, preview got %q", text, a.stdin)
		}
		yaml = strings.ReplaceAll(text, "\n", "\r\n")
	}
	answer, text := s.do(t, s.request(t, http.MethodPost, whatIfPath, url.Values{"yaml": {strings.Repeat("x", maxForm)}}))
	if answer.StatusCode != http.StatusRequestEntityTooLarge || !strings.Contains(text, "too large") {
		t.Errorf("%s: %s", answer.Status, text)
	}
}

// TestClocks: minutes are counted by the node's clock, and a wrong clock is named. The rate counts one whole minute.
func TestClocks(t *testing.T) {
	t.Parallel()
	a := someAgents(control.Objects{})
	now := time.Now().Add(10 * time.Minute)
	whole := now.Truncate(time.Minute)
	a.change("n1", func(d *data) {
		d.Now, d.Drops.From = now, now.Add(-2*time.Hour)
		for i, packets := range []uint64{600, 600, 400} { // 10 a second, for 40 seconds by now
			begin := whole.Add(time.Duration(i-2) * time.Minute)
			d.Drops.Minutes = append(d.Drops.Minutes, control.DropMinute{Begin: begin, NotShown: packets})
		}
	})
	shows(t, a, "/", []string{"<b>10.0</b> denied", "ahead of this machine", `<rect x="228"`, `<rect x="236"`}, []string{"not known of"})
	flow := control.DropFlow{Drop: control.Drop{Direction: "ingress"}, Packets: 77, Last: now.Add(-8 * time.Minute)}
	a.change("n1", func(d *data) {
		d.Drops.Minutes = []control.DropMinute{{Begin: flow.Last.Truncate(time.Minute), Flows: []control.DropFlow{flow}}}
	})
	shows(t, a, "/denied?minutes=9", []string{"<td>77"}, nil)
	shows(t, a, "/denied?minutes=7", nil, []string{"<td>77"})
	a.change("n1", func(d *data) { d.Now, d.Drops.Fault = time.Now(), "no room" })
	shows(t, a, "/", []string{"not known of 1 node"}, []string{"its clock"})
	shows(t, a, "/matrix", []string{"Denied packets of 1 node are not known"}, nil)
}

// TestCountersAreMissing: the page of policies says whose counters it does not have, and claims nothing of them.
func TestCountersAreMissing(t *testing.T) {
	t.Parallel()
	a := shop()
	rule := control.RuleHits{Policy: "networkpolicy/shop/db-from-web", Rule: "ingress[0]"}
	a.change("n1", func(d *data) { d.Hits.Rules = []control.RuleHits{rule} })
	shows(t, a, "/policies", []string{"no hit known", "n2: its counters are not known: no answer"}, []string{"never hit"})
	a.change("n1", func(d *data) { d.Hits, d.Faults = control.Hits{}, []string{"counters of rules: no room"} })
	shows(t, a, "/policies", []string{"No rule of a policy is known", "n1: its counters are not known: counters of rules: no room"}, []string{"applies to"})
	a.nodes = a.nodes[:1]
	a.change("n1", func(d *data) { d.Hits = control.Hits{At: time.Now(), Rules: []control.RuleHits{rule}} })
	shows(t, a, "/policies", []string{"never hit"}, []string{"not known"})
	shows(t, a, "/pod/shop/db", []string{"ingress[0]", "of all pods there to which the policy applies"}, []string{"the policies of this pod are not known"})
	shows(t, a, "/pod/shop/web", []string{"n1: the policies of this pod are not known"}, []string{"No rule of a policy applies"})
	a.objects.Pods[0].Spec.NodeName = ""
	shows(t, a, "/pod/shop/web", nil, []string{"Rules of its policies"})
}

// TestAllWays: the ways between all ends of a large cluster are not computed, and pods without an address are named.
func TestAllWays(t *testing.T) {
	t.Parallel()
	o := manyClasses(20, 10, 1)
	waits := pod("team-0", "waits", 1, nil)
	waits.Status.PodIPs = nil
	o.Pods = append(o.Pods, waits)
	a := someAgents(o)
	shows(t, a, "/reach", []string{"are too many for all ways"}, nil)
	shows(t, a, "once", []string{"Not listed: ", "are too many for all ways", "SHA-256 of the objects: <code>"}, []string{"<code></code>"})
	shows(t, a, "/reach?from=team-0/service-0-0", []string{"1 pod without an address", "team-0/waits"}, []string{"too many"})
	a.objects.Pods = a.objects.Pods[190:]
	for _, path := range []string{"/reach", "once", "/pod/team-19/service-0-0"} {
		shows(t, a, path, []string{"1 pod without an address", "team-0/waits"}, []string{"too many"})
	}
}

// TestReportIsNotShared: the file of --once is only for its user, replaces a whole file by a whole one, and follows no link.
func TestReportIsNotShared(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path, other := filepath.Join(dir, "report.html"), filepath.Join(dir, "other")
	write := func(a *agents, path string) error {
		c := Command(a)
		c.SilenceErrors, c.SilenceUsage = true, true
		c.SetArgs([]string{"--once", "--out", path})
		return c.ExecuteContext(t.Context())
	}
	if err := os.WriteFile(path, []byte("old"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, 0o644); err != nil {
		t.Fatal(err)
	}
	a := someAgents(control.Objects{})
	if err := write(a, path); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode() != 0o600 || info.Size() < 100 {
		t.Errorf("%v, %v", info, err)
	}
	if err := os.Symlink(path, other); err != nil {
		t.Fatal(err)
	}
	for _, not := range []string{other, dir} {
		if err := write(a, not); err == nil || !strings.Contains(err.Error(), "not a regular file") {
			t.Errorf("%s: %v", not, err)
		}
	}
	if left, err := os.ReadDir(dir); len(left) != 2 || err != nil {
		t.Errorf("%v, %v", left, err)
	}
}

// TestWhyOfDenied: a denied packet has a link to its trace, in the words and family of felixctl trace, or none.
func TestWhyOfDenied(t *testing.T) {
	t.Parallel()
	end := func(ip string) control.DropEnd { return control.DropEnd{Address: netip.MustParseAddr(ip)} }
	node := control.DropEnd{Address: netip.MustParseAddr("fd00::9"), Node: "n1"}
	for want, d := range map[string]control.Drop{
		"/why?family=4&from=10.0.0.1&port=tcp%2F80&to=10.0.0.2":     {From: end("10.0.0.1"), To: end("10.0.0.2"), Protocol: "tcp", Port: 80},
		"/why?family=6&from=node%3An1&port=icmp&to=fd00%3A%3A2":     {From: node, To: end("fd00::2"), Protocol: "icmpv6", ICMP: &control.ICMPType{Type: 128}},
		"/why?family=4&from=10.0.0.1&port=icmp%2F13%2F0&to=9.9.9.9": {From: end("10.0.0.1"), To: end("9.9.9.9"), Protocol: "icmp", ICMP: &control.ICMPType{Type: 13}},
	} {
		if got := whyPath(d); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
	for _, d := range []control.Drop{
		{From: end("10.0.0.1"), To: end("10.0.0.2"), Protocol: "47"},
		{From: node, To: end("fd00::2"), Protocol: "icmpv6", ICMP: &control.ICMPType{Type: 135}},
		{From: end("10.0.0.1"), To: end("10.0.0.2"), Protocol: "icmp", ICMP: &control.ICMPType{}},
	} {
		if got := whyPath(d); got != "" {
			t.Errorf("%+v: %s", d, got)
		}
	}
	shows(t, shop(), "/denied", []string{`href="/why?family=4&amp;from=ops%2Fshell&amp;port=tcp%2F5432&amp;to=shop%2Fdb"`}, nil)
	shows(t, shop(), "/matrix", []string{"1 closed pod: nothing gets to or from them"}, nil)
}
