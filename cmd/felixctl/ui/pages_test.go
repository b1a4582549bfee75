package ui

import (
	"bytes"
	"errors"
	"net/http"
	"net/netip"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/felixlike/felixlike/felixlike/control"
	"github.com/felixlike/felixlike/felixlike/report"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/test/eventually"
	"github.com/felixlike/felixlike/test/stopwatch"
)

const tracedJSON = `[{"from":"ops/shell","to":"shop/db","verdict":"denied","why":"ingress of shop/db: no rule allows it",
"policies":{"egress":{"who":"10.1.0.4 (ops/shell)","why":"no policy isolates the pod","allowed":true},"ingress":{"who":"10.1.0.3 (shop/db)","why":"no rule allows it","asked":[{"policy":"networkpolicy/shop/db-from-web","rule":"ingress[0]","because":"ops/shell is not in from"}]}},
"programmed":[{"backend":"nftables","path":{"fate":"dropped","at":"n1, chain pods-in","steps":[{"node":"n1","place":"nftables inet felixlike","table":"chain pods-in","number":2,"rule":"drop","effect":"drop"}]}}],"notes":["a note"]}]`

const previewedJSON = `{"node":"n1","policies":[{"policy":"shop/open","kind":"NetworkPolicy","what":"created","pods":["shop/db"],"problems":["spec: a problem"]}],
"verdicts":[{"from":["ops/shell"],"to":["shop/db"],"families":["IPv4"],"ports":["tcp/80"],"becomes":"allowed","because":"networkpolicy/shop/open ingress[0] allows it"},
{"from":["ops/shell-2"],"to":["shop/db"],"families":["IPv4"],"ports":["tcp/80"],"becomes":"allowed","because":"networkpolicy/shop/open ingress[0] allows it"}],
"stillDenied":[{"from":["shop/web"],"to":["shop/db"],"families":["IPv4"],"ports":["tcp/81"],"becomes":"denied","because":"egress is isolated"}],
"connectionsLookedAt":true,"outlivedConnections":[{"protocol":"tcp","source":"10.1.0.2","destination":"10.1.0.3","port":5432,"from":"shop/web","to":"shop/db","because":"it ends"}]}`

const provedJSON = `{"equal":false,"compared":"all packets","notProved":[],"assumed":[],"differences":[{"a":"dropped","b":"accepted","way":"through the host","connection":"new",
"packet":{"from":"ops/shell","source":"10.1.0.4","destination":"10.1.0.3","protocol":"tcp","port":80},"regions":[{"source":"shop/open","destination":"10.1.0.0/24","ports":"tcp 80-90",
"sources":["10.1.0.4-10.1.0.4"],"destinations":["10.1.0.3-10.1.0.3","192.0.2.0-192.0.2.255"]}]}]}`

// TestProof: the page of backends compares all packets only if it is asked to, and has the verdict of each node, or the reason why there is none.
func TestProof(t *testing.T) {
	t.Parallel()
	a := shop()
	a.nodes = []string{"n1", "n2", "n3", "n4", "n5"}
	for _, n := range a.nodes[1:4] {
		a.data[n] = a.data["n1"]
	}
	a.answers["prove n1"] = `{"equal":true,"compared":"all packets of all connections"}`
	a.answers["prove n2"] = provedJSON
	a.answers["prove n3"] = `{"equal":false,"notProved":["later packets","flows"]}`
	a.answers["prove n4"] = "felixctl: not proved"
	s := serve(t, a)
	if text := s.get(t, "/backends"); strings.Contains(text, "equal") || !strings.Contains(text, "data-live") || !strings.Contains(text, `<option value="openflow">`) {
		t.Errorf("without a question:\n%s", text)
	}
	text := s.get(t, "/backends?prove=openflow")
	for _, want := range []string{
		`<td>n1<td class="good">equal<td class="because">no packet tells them apart: all packets of all connections`,
		`<td>n2<td class="bad">differ<td class="because"><a href="/pod/ops/shell">ops/shell</a> → 10.1.0.3 tcp/80 (through the host, connection: new): now dropped; under openflow accepted`,
		"<li>shop/open → 10.1.0.0/24 tcp 80-90: now dropped; then accepted",
		`<td>n3<td class="bad">proved in part<td class="because">nothing compared differs; not proved: later packets, flows`,
		`<td>n4<td class="bad">not proved<td class="because">the answer cannot be read`,
		`<td>n5<td class="bad">not proved<td class="because">no answer within`, `<option value="openflow" selected>`,
	} {
		if !strings.Contains(text, want) {
			t.Errorf("it lacks %q:\n%s", want, text)
		}
	}
	if p := provedBy(Answer{Fault: "exit code 3: proved in part", Out: []byte(a.answers["prove n3"])}); p.Fault != "" || len(p.NotProved) != 2 {
		t.Errorf("proved in part: %+v", p)
	}
	if p := provedBy(Answer{Fault: "exit code 2: felixctl: not proved: table x: unknown"}); p.Fault != "table x: unknown" {
		t.Errorf("not proved: %+v", p)
	}
	if strings.Contains(text, "data-live") {
		t.Error("the page with a proof loads itself again")
	}
	if last, want := a.asked[len(a.asked)-1], []string{"prove", "live", "backend:openflow", "-o=json", "--timeout=30s"}; !slices.Equal(last, want) {
		t.Errorf("asked %q, want %q", last, want)
	}
	s.get(t, "/backends?prove=wanted")
	if last := a.asked[len(a.asked)-1]; last[2] != "wanted" {
		t.Errorf("asked %q", last)
	}
	if answer, _ := s.do(t, s.request(t, http.MethodGet, "/backends?prove=--socket=/x", nil)); answer.StatusCode != http.StatusBadRequest {
		t.Errorf("no backend: %s", answer.Status)
	}
}

// TestFrames: the matrix has a frame around each cell that a proof has found to differ, and says if some may be missing.
func TestFrames(t *testing.T) {
	t.Parallel()
	a := shop()
	a.nodes = []string{"n1"}
	a.objects.Nodes[0].Spec.PodCIDR = "10.1.0.0/16"
	a.objects.Nodes[0].Status.Addresses = []corev1.NodeAddress{{Address: "n1"}, {Address: "172.18.0.2"}}
	a.change("n1", func(d *data) { d.ServiceCIDRs = []netip.Prefix{netip.MustParsePrefix("10.96.0.0/12")} })
	s := serve(t, a)
	framed := func(path string) (text string, cells []string) {
		clear(s.prover.last)
		text = s.get(t, path)
		columns := regexp.MustCompile(`to=([^"]*)`).FindAllStringSubmatch(text, -1)
		for _, row := range regexp.MustCompile(`<tr[^>]*><th><a href="/reach\?from=([^"]*)">.*`).FindAllStringSubmatch(text, -1) {
			for i, cell := range strings.Split(row[0], "<td")[1:] {
				if strings.Contains(cell, ` f"`) {
					cells = append(cells, row[1]+" "+columns[i][1])
				}
			}
		}
		return text, cells
	}
	a.answers["prove"] = provedJSON
	text, cells := framed("/matrix?backend=openflow")
	// The pods of ops are one class: columns name another one than rows.
	if want := []string{"ops%2fshell shop%2fdb", "ops%2fshell outside"}; !slices.Equal(slices.Sorted(slices.Values(cells)), slices.Sorted(slices.Values(want))) {
		t.Errorf("framed: %q, want %q\n%s", cells, want, text)
	}
	for _, want := range []string{"Framed: 2 cells", "<option selected>openflow", `<td>n1<td class="bad">differ`} {
		if !strings.Contains(text, want) {
			t.Errorf("it lacks %q:\n%s", want, text)
		}
	}
	if strings.Contains(text, "data-live") || strings.Contains(text, "may be missing") {
		t.Errorf("it loads itself again, or lacks frames:\n%s", text)
	}
	if _, cells := framed("/matrix?backend=openflow&by=namespace"); len(cells) != 2 {
		t.Errorf("by namespace: %q", cells)
	}
	const incomplete = "Frames may be missing: on 1 node, some packets"
	const pods, beyond = `["10.1.0.4-10.1.0.4"]`, `["10.1.0.3-10.1.0.3","192.0.2.0-192.0.2.255"]`
	for name, c := range map[string]struct {
		answer string
		framed int
	}{
		"in part":           {`{"equal":false,"notProved":["flows"]}`, 0},
		"not read":          {"felixctl: not proved", 0},
		"more":              {strings.Replace(provedJSON, `"way"`, `"moreRegions":true,"way"`, 1), 2},
		"no regions":        {`{"differences":[{"a":"dropped","b":"accepted"}]}`, 0},
		"of an older agent": {strings.Replace(provedJSON, `"sources":`+pods+",", "", 1), 0},
		"from a node":       {strings.Replace(provedJSON, pods, `["172.18.0.2-172.18.0.2"]`, 1), 0},
		"from a young pod":  {strings.Replace(provedJSON, pods, `["10.1.7.7-10.1.7.7"]`, 1), 0},
		"to a Service":      {strings.Replace(provedJSON, beyond, `["10.96.0.10-10.96.0.10"]`, 1), 0},
		"to a node":         {strings.Replace(provedJSON, beyond, `["172.18.0.2-172.18.0.2"]`, 1), 0},
	} {
		a.answers["prove"] = c.answer
		if text, cells := framed("/matrix?backend=nftables"); !strings.Contains(text, incomplete) || len(cells) != c.framed {
			t.Errorf("%s: framed %q, want %d, and that some may be missing:\n%s", name, cells, c.framed, text)
		}
	}
	a.answers["prove"] = strings.Replace(provedJSON, beyond, `["10.1.0.3-10.1.0.3"]`, 1)
	if text, cells := framed("/matrix?backend=nftables&to=ops"); len(cells) > 0 || !strings.Contains(text, incomplete) {
		t.Errorf("what differs is in another namespace: framed %q\n%s", cells, text)
	}
	// Without the prefixes of Services, any address may be of one.
	a.answers["prove"] = provedJSON
	a.change("n1", func(d *data) { d.ServiceCIDRs = nil })
	other := serve(t, a)
	if text := other.get(t, "/matrix?backend=nftables"); !strings.Contains(text, "Framed: 2 cells") || !strings.Contains(text, incomplete) {
		t.Errorf("without prefixes of Services:\n%s", text)
	}
	a.answers["prove"] = `{"equal":true,"compared":"all packets"}`
	if text, cells := framed("/matrix?backend=nftables"); len(cells) > 0 || !strings.Contains(text, "No cell of this page is known to differ under nftables") || strings.Contains(text, "missing") {
		t.Errorf("equal: %q\n%s", cells, text)
	}
	asked := len(a.asked)
	if text, cells := framed("/matrix"); len(cells) > 0 || strings.Contains(text, "<h2>Proof") || slices.ContainsFunc(a.asked[asked:], func(c []string) bool { return c[0] == "prove" }) {
		t.Errorf("without a question: %q\n%s", cells, text)
	}
	if answer, _ := s.do(t, s.request(t, http.MethodGet, "/matrix?backend=wanted", nil)); answer.StatusCode != http.StatusBadRequest {
		t.Errorf("no backend: %s", answer.Status)
	}
}

// TestPages: each page shows what it is for.
func TestPages(t *testing.T) {
	t.Parallel()
	a := shop()
	a.answers["trace"], a.answers["preview"] = tracedJSON, previewedJSON
	s := serve(t, a)
	for path, wants := range map[string][]string{
		"/":                    {"<b>NO ANSWER</b> 1 of 2 nodes", "no answer within", "1 closed pod<", "shop/x is quarantined", "<b>2.0</b> denied packets a second", "it is odd", `<rect x="232"`},
		"/matrix":              {`<a href="/reach?from=ops%2fshell">ops/shell</a> +1`, `class="p">5432`, `class="d x"`},
		"/matrix?by=namespace": {`href="/reach?to=namespace%3ashop"`, `class="m x"`},
		"/matrix?from=ops":     {`selected>ops`},
		"/reach?from=shop/web&to=shop/db&port=5432/tcp": {"networkpolicy/shop/db-from-web ingress[0] allows it", "tcp/5432"},
		"/pod/shop/db": {"<td>networkpolicy/shop/db-from-web<td>ingress[0]<td>1<td>7<td>", "networkpolicy/shop/db-from-web ingress[0] allows it", "closed: shop/x is quarantined", "app=db", "Denied, for", `href="/pod/shop/web"`, "120"},
		"/why":         {"<form"},
		"/why?from=ops%2Fshell&to=shop%2Fdb&port=80%2Ftcp": {"no rule allows it", "ops/shell is not in from", "<details>", "1 step", "a note", `<a href="/what-if?family=&amp;from=ops%2Fshell&amp;port=80%2Ftcp&amp;to=shop%2Fdb">`},
		"/denied":                         {"ops/shell", "networkpolicy/shop/db-from-web", "120", "n2: no answer", `<a href="/what-if?family=4`},
		"/denied?pod=ops/shell&minutes=5": {"120"},
		"/denied?namespace=nosuch":        {"there is no namespace nosuch now"},
		"/denied?pod=ops/none":            {"there is no pod ops/none now"},
		"/denied?direction=egress":        {"No denied packets are known"},
		"/what-if":                        {"<textarea"},
		"/what-if?from=shop/web&to=shop/db&port=5433/tcp":  {"proposed for <b>shop/web to shop/db, tcp/5433", "name: allow-db-from-web-5433", "Packets with another verdict"},
		"/what-if?from=ops/shell&to=shop/db&port=5432/tcp": {"No NetworkPolicy is proposed for <b>ops/shell", "ops/shell has no label"},
		"/policies":  {"networkpolicy/shop/db-from-web", "<td>7"},
		"/policies?": {"allow nothing: shop/nothing."},
		"/backends":  {"nftables", "no answer within"},
	} {
		text := s.get(t, path)
		for _, want := range wants {
			if !strings.Contains(text, want) {
				t.Errorf("%s lacks %q:\n%s", path, want, text)
			}
		}
	}
	answer, text := s.do(t, s.request(t, http.MethodPost, whatIfPath, url.Values{"yaml": {"kind: NetworkPolicy"}, "delete": {"networkpolicy/shop/x --lab=y"}}))
	for _, want := range []string{"shop/open", "a problem", "networkpolicy/shop/open ingress[0] allows it", "Still denied", "tcp/81", "it ends", "TCP/5432"} {
		if answer.StatusCode != http.StatusOK || !strings.Contains(strings.ReplaceAll(text, "tcp/5432", "TCP/5432"), want) {
			t.Errorf("what if: %s lacks %q:\n%s", answer.Status, want, text)
		}
	}
	if n := strings.Count(text, "networkpolicy/shop/open ingress[0] allows it"); n != 1 {
		t.Errorf("equal differences are on %d rows", n)
	}
	last := a.asked[len(a.asked)-1]
	if want := []string{"preview", "-o=json", "--filename=-", "--delete=networkpolicy/shop/x", "--delete=--lab=y"}; !slices.Equal(last, want) {
		t.Errorf("asked %q, want %q: no text of a form is a flag", last, want)
	}
	if answer, _ := s.do(t, s.request(t, http.MethodGet, "/pod?name=shop/db", nil)); answer.Header.Get("Location") != "/pod/shop/db" {
		t.Errorf("the form of a pod leads to %v", answer.Header)
	}
	for _, path := range []string{"/pod/shop/nosuch", "/reach?from=nosuch", "/reach?port=x", "/denied?minutes=0", "/what-if?from=shop/web&to=shop/none&port=80/tcp", "/denied?pod=x", "/matrix?by=x"} {
		if answer, text := s.do(t, s.request(t, http.MethodGet, path, nil)); answer.StatusCode != http.StatusBadRequest || !strings.Contains(text, `class="bad"`) {
			t.Errorf("%s: %s", path, answer.Status)
		}
	}
}

// TestGap: without an agent that has read the objects, pages of verdicts say so, and the others are there.
func TestGap(t *testing.T) {
	t.Parallel()
	a := shop()
	d := a.data["n1"]
	d.Status.InSync = false
	a.data["n1"] = d
	s := serve(t, a)
	if text := s.get(t, "/"); !strings.Contains(text, "the first listing of the datastore is not complete") {
		t.Errorf("the reason is missing:\n%s", text)
	}
	for _, path := range []string{"/matrix", "/reach", "/pod/shop/db"} {
		answer, text := s.do(t, s.request(t, http.MethodGet, path, nil))
		if answer.StatusCode != http.StatusBadGateway || !strings.Contains(text, "no agent has read the objects") {
			t.Errorf("%s: %s\n%s", path, answer.Status, text)
		}
	}
}

// TestMatrixOfManyClasses: the matrix of 80 classes is below 60 KB, and beyond it is by namespace.
func TestMatrixOfManyClasses(t *testing.T) {
	t.Parallel()
	s := serve(t, someAgents(manyClasses(8, 10, 12)))
	text := s.get(t, "/matrix")
	if n := strings.Count(text, "<tr"); n != 82 {
		t.Errorf("%d rows, want one for each class, the outside and the head", n)
	}
	t.Logf("%d bytes", len(text))
	if len(text) > 60<<10 {
		t.Errorf("%d bytes", len(text))
	}
	larger := serve(t, someAgents(manyClasses(9, 10, 1)))
	if text := larger.get(t, "/matrix"); strings.Count(text, "<tr") != 11 || !strings.Contains(text, "namespace%3ateam-8") {
		t.Errorf("90 classes:\n%s", text)
	}
}

// TestMatrixIsReach: each cell agrees with felixctl reach.
func TestMatrixIsReach(t *testing.T) {
	t.Parallel()
	a := shop()
	s := source{access: a, life: t.Context()}
	now, err := s.get(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	page := now.matrixOf("class", "", "", nil)
	seen := map[string]int{}
	for _, r := range page.Rows {
		for i, c := range r.Cells {
			class, _, _ := strings.Cut(c.Class, " ")
			if class == "" {
				class = closedCell
				if r.Open {
					class = openCell
				}
			}
			seen[class]++
			answer, err := now.answer(t.Context(), r.Asked, page.Columns[i].Asked, model.PortRange{})
			if err != nil {
				t.Errorf("%s to %s: %v", r.Name, page.Columns[i].Name, err)
				continue
			}
			want := emptyCell
			switch {
			case len(answer.Allowed) > 0 && len(answer.Denied) == 0:
				want = openCell
			case len(answer.Allowed) > 0:
				want = portsCell
			case len(answer.Denied) > 0:
				want = closedCell
			}
			if class != want && (class != emptyCell || answer.Note == "") {
				t.Errorf("%s to %s: %s, want %s", r.Name, page.Columns[i].Name, class, want)
			}
		}
	}
	for _, class := range []string{openCell, portsCell, closedCell} {
		if seen[class] == 0 {
			t.Errorf("no cell is %s: %v", class, seen)
		}
	}
}

// TestFirstPaint: with 1,000 pods, each page is there within 300 ms after the agents have answered.
func TestFirstPaint(t *testing.T) {
	s := serve(t, someAgents(manyClasses(8, 10, 13)))
	s.get(t, "/backends") // the agents have answered
	for _, path := range []string{"/", "/matrix", "/matrix?by=namespace", "/pod/team-0/service-0-0", "/denied", "/backends"} {
		best := time.Hour
		for range 3 {
			s.last.cluster.forget()
			watch := stopwatch.Start(t)
			s.get(t, path)
			best = min(best, watch.Lap(t).Net()) // without what other processes take
		}
		t.Logf("%s: %s", path, best)
		if best > 300*time.Millisecond {
			t.Errorf("%s takes %s", path, best)
		}
	}
}

// TestObjectsAreReadOnce: the objects of an unchanged revision are not read again, and those of another one are.
func TestObjectsAreReadOnce(t *testing.T) {
	t.Parallel()
	a := shop()
	s := source{access: a, life: t.Context()}
	read := func() (n int) {
		if s.last != nil {
			s.last.At = time.Time{}
		}
		if _, err := s.get(t.Context()); err != nil {
			t.Fatal(err)
		}
		for _, command := range a.asked {
			if command[len(command)-1] == "--objects" {
				n++
			}
		}
		return n
	}
	if first, second := read(), read(); first != 1 || second != 1 {
		t.Errorf("%d and %d times", first, second)
	}
	d := a.data["n1"]
	d.Status.Observed++
	d.Status.Programmed++
	a.data["n1"] = d
	a.objects.Pods = a.objects.Pods[:2]
	if n := read(); n != 2 || len(s.last.Objects.Pods) != 2 {
		t.Errorf("%d times, %d pods", n, len(s.last.Objects.Pods))
	}
	// A cluster that takes a minute to answer is not asked all the time.
	asked := len(a.asked)
	s.last.At, s.last.took = time.Now().Add(-time.Minute), time.Minute
	if _, err := s.get(t.Context()); err != nil || len(a.asked) != asked {
		t.Errorf("%v, asked %d times more", err, len(a.asked)-asked)
	}
	if h := s.last.health(); h.State != "NO ANSWER" || h.Ready != 1 || report.State(s.last.Nodes[1].Status) != report.StateReady {
		t.Errorf("%+v", h)
	}
}

// TestWorstState: the line of the cluster has the state of its worst node.
func TestWorstState(t *testing.T) {
	t.Parallel()
	a := someAgents(control.Objects{})
	for name, change := range map[string]func(*control.Status){
		"n1": func(*control.Status) {}, "n2": func(s *control.Status) { s.Observed++ }, "n3": func(s *control.Status) { s.LastApply.Error = "no space" },
	} {
		d := a.data["n1"]
		d.Status.Node = name
		change(&d.Status)
		a.data[name] = d
	}
	a.nodes = []string{"n1", "n2", "n3"}
	if text := serve(t, a).get(t, "/"); !strings.Contains(text, "<b>Degraded</b> 1 of 3 nodes ready") || strings.Index(text, "<td>n3") > strings.Index(text, "<td>n2") {
		t.Errorf("the worst state is not first:\n%s", text)
	}
}

// TestAtTheSameTime: several pages may be asked at once (for the race detector).
func TestAtTheSameTime(t *testing.T) {
	t.Parallel()
	a := shop()
	a.answers["trace"], a.answers["preview"] = tracedJSON, previewedJSON
	s := serve(t, a)
	var wait sync.WaitGroup
	for i := range 4 * len(paths) {
		wait.Go(func() { s.do(t, s.request(t, http.MethodGet, paths[i%len(paths)], nil)) })
	}
	wait.Wait()
}

// TestSlowNode: while a node takes its time, pages show what the agents answered before, and then what they answer.
func TestSlowNode(t *testing.T) {
	t.Parallel()
	a := shop()
	s := serve(t, a)
	s.get(t, "/")
	s.last.At = time.Time{}
	a.hangs = make(chan struct{})
	if text := s.get(t, "/"); !strings.Contains(text, "4 pods") || !strings.Contains(text, "OLD: this is the state of 0001-01-01") || !s.last.At.IsZero() {
		t.Errorf("it does not show the last state:\n%s", text)
	}
	a.objects.Pods = a.objects.Pods[:2]
	close(a.hangs)
	eventually.True(t, "the new state is on the page", func() bool { return !strings.Contains(s.get(t, "/"), "0001-01-01") })
	if text := s.get(t, "/"); strings.Contains(text, "OLD") {
		t.Errorf("the new state is called old:\n%s", text)
	}
	// The reason why there is no new state is not lost when it comes late.
	a.fail(errors.New("the API server is away"))
	s.last.At = time.Now().Add(-time.Hour)
	if answer, text := s.do(t, s.request(t, http.MethodGet, "/", nil)); answer.StatusCode != http.StatusBadGateway || !strings.Contains(text, "is away") {
		t.Errorf("%s: %s", answer.Status, text)
	}
	hang := make(chan struct{})
	a.hold(hang)
	defer close(hang)
	if text := s.get(t, "/"); !strings.Contains(text, " ago. the API server is away") {
		t.Errorf("it does not say why it is old:\n%s", text)
	}
}

// forget makes the next page compute the verdicts again.
func (c *cluster) forget() { c.once, c.matrix = sync.Once{}, nil }

// BenchmarkReport writes the file of --once for 80 classes of 13 pods.
func BenchmarkReport(b *testing.B) {
	s := source{access: someAgents(manyClasses(8, 10, 13)), life: b.Context()}
	now, err := s.get(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		now.cluster.forget()
		var text bytes.Buffer
		if err := writeReport(b.Context(), &text, now); err != nil {
			b.Fatal(err)
		}
		b.ReportMetric(float64(text.Len()), "bytes")
	}
}
