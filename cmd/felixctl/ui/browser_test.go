package ui

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"html"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/felixlike/felixlike/felixlike/control"
	"github.com/felixlike/felixlike/model"
	testbrowser "github.com/felixlike/felixlike/test/browser"
)

// hostile are texts that would run if a page did not escape them.
var hostile = []string{
	`<script>document.title="RUN"</script>`, `"><img src=x onerror='document.title="RUN"'>`, `'--></style></textarea><svg onload="document.title='RUN'">`,
	"javascript:document.title='RUN'//", "{{.}}&lt;b&gt;\u202e\x1b[31m", `" onmouseover="document.title='RUN'" x="`,
}

// hostileAgents has hostile texts wherever a cluster can have texts, and names of the greatest length.
func hostileAgents() *agents {
	a := shop()
	long := strings.Repeat("a-long-name", 6)[:63]
	for i, text := range hostile {
		p := pod(text, text, 10+i, map[string]string{text: text, "app": text})
		a.objects.Pods = append(a.objects.Pods, p, pod(long, long+fmt.Sprint(i), 20+i, map[string]string{"app": long}))
		a.objects.Policies = append(a.objects.Policies, &networkingv1.NetworkPolicy{
			ObjectMeta: metav1.ObjectMeta{Namespace: text, Name: text},
			Spec:       networkingv1.NetworkPolicySpec{PodSelector: metav1.LabelSelector{MatchLabels: map[string]string{"app": text}}, PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeIngress}},
		})
	}
	all := strings.Join(hostile, " ")
	d := a.data["n1"]
	d.Status.Backend, d.Layout, d.Status.AgentVersion, d.Status.LastApply.Error = all, all, all, all
	d.Status.Endpoints = append(d.Status.Endpoints, control.Endpoint{Namespace: long, Name: hostile[0], State: control.EndpointClosed, Reason: all})
	d.Status.Problems = append(d.Status.Problems, model.Problem{Object: model.ObjectRef{Kind: "NetworkPolicy", Namespace: long, Name: long}, Reason: all})
	d.Status.Quarantined = []control.Quarantined{{Kind: "set", Name: all, Reason: all}}
	d.Hits.Rules = append(d.Hits.Rules, control.RuleHits{Policy: long + "/" + long, Rule: "ingress[0]", RuleName: all})
	drop := d.Drops.Minutes[0].Flows[0]
	drop.From.Pod, drop.Policies, drop.Packets = hostile[0]+"/"+hostile[1], []string{all}, 1
	d.Drops.Minutes[0].Flows = append(d.Drops.Minutes[0].Flows, drop)
	d.Faults = hostile
	a.data["n1"] = d
	text, _ := json.Marshal(all) //nolint:errchkjson // a string
	answer := func(of string) string { return strings.ReplaceAll(of, `"shop/open"`, string(text)) }
	a.answers["trace"] = strings.ReplaceAll(tracedJSON, `"drop"`, string(text))
	a.answers["preview"] = answer(previewedJSON)
	a.answers["prove"] = answer(provedJSON)
	return a
}

// paths are all pages.
var paths = []string{
	"/", "/matrix", "/matrix?by=namespace", "/matrix?backend=openflow", "/reach?to=shop/db", "/pod/shop/db", "/why?from=ops/shell&to=shop/db&port=5432/tcp", "/denied", whatIfPath, "/policies", "/backends", "/backends?prove=wanted",
	"/nosuch",
}

// TestHostileTexts: texts of a cluster are shown as they are, and none runs, in a real browser with scripts. A policy of contents stands behind the escapes.
func TestHostileTexts(t *testing.T) {
	t.Parallel()
	program := browser(t)
	s := serve(t, hostileAgents())
	all := append([]string{"/reach?from=" + `%22%3E%3Cscript%3Edocument.title%3D%22RUN%22%3C%2Fscript%3E`, "/denied?pod=" + `%3Cscript%3E%2Fx`}, paths...)
	for _, p := range s.last0(t).Objects.Pods {
		if path := podPath(p.Namespace + "/" + p.Name); path != "" {
			all = append(all, path)
		}
	}
	for _, path := range all {
		_, text := s.do(t, s.request(t, http.MethodGet, path, nil))
		for _, tag := range regexp.MustCompile(`<(script|img|svg|style|iframe)[^>]*>`).FindAllString(text, -1) {
			if tag != `<script src="/script.js" defer>` && !strings.HasPrefix(tag, `<svg viewBox="0 0 240 24"`) {
				t.Errorf("%s has %s", path, tag)
			}
		}
		if strings.ContainsAny(text, "\u202e\x1b") {
			t.Errorf("%s has a character that changes the text beside it", path)
		}
		if strings.Contains(strings.ToLower(text), `href="javascript:`) || regexp.MustCompile(`<[^>"]*("[^"]*"[^>"]*)*\son\w+=`).MatchString(text) {
			t.Errorf("%s has code:\n%s", path, text)
		}
	}
	for _, path := range []string{"/", "/matrix", "/denied", "/policies"} {
		dom := dump(t, program, s.URL+path+"?token="+s.token, false)
		if strings.Contains(dom, "<title>RUN") || !strings.Contains(dom, "&lt;script&gt;document.title=") {
			t.Errorf("%s: it ran, or does not show the text:\n%.3000s", path, dom)
		}
	}
}

// last0 is a first snapshot.
func (s site) last0(t *testing.T) *snapshot {
	t.Helper()
	now, err := s.server.get(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return now
}

// TestLayout: without script, at the width of a telephone and of a desk, in light and dark, nothing is wider than the page, and texts have enough contrast.
func TestLayout(t *testing.T) {
	t.Parallel()
	program := browser(t)
	for name, a := range map[string]*agents{"shop": shop(), "hostile": hostileAgents(), "80 classes": someAgents(manyClasses(8, 10, 2))} {
		s := serve(t, a)
		a.answers["trace"], a.answers["preview"], a.answers["prove"] = tracedJSON, previewedJSON, provedJSON
		var pages []string
		for _, path := range paths {
			if name == "80 classes" && path != "/matrix" {
				continue
			}
			_, page := s.do(t, s.request(t, http.MethodGet, path, nil))
			pages = append(pages, s.inlined(t, page))
		}
		for _, dark := range []bool{false, true} {
			for i, f := range lookAt(t, program, pages, dark) {
				if len(f.Found) > 0 || f.Texts < 5 || f.Dark != dark {
					t.Errorf("%s: %s: %+v", name, paths[i/len(widths)], f)
				}
			}
		}
	}
}

// widths has the width of a telephone and of a desktop window, in pixels.
var widths = []int{390, 1280}

// TestLiveParts: in a real browser, the script hears of a new state and loads the page again.
func TestLiveParts(t *testing.T) {
	t.Parallel()
	again := func(w http.ResponseWriter, r *http.Request, pages http.Handler) bool {
		pages.ServeHTTP(w, r)
		return r.URL.Path == "/" && r.Header.Get("Sec-Fetch-Mode") == "cors"
	}
	opened(t, shop(), "/", again)
}

// TestBanner: in a real browser, a live page says so when it is not the present state any more. A script of the test reports what the banner says.
func TestBanner(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		path string // of the requests that fail from the first one on
		want string
	}{
		"the agents cannot be asked":    {want: "the API server is away"},
		"the command does not answer":   {path: "/events", want: "felixctl ui does not answer"},
		"the page cannot be read again": {path: "/", want: "cannot be loaded again: 502"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := shop()
			opened(t, a, "/", func(w http.ResponseWriter, r *http.Request, pages http.Handler) bool {
				switch {
				case c.path == "" && r.URL.Path == "/events":
					a.fail(errors.New("the API server is away"))
				case c.path == r.URL.Path && r.Header.Get("Sec-Fetch-Mode") == "cors":
					w.WriteHeader(http.StatusBadGateway)
					return false
				case r.URL.Path == "/script.js":
					script, _ := assets.ReadFile("assets/script.js")
					_, _ = io.WriteString(w, string(script)+`new MutationObserver(() => fetch("/seen?" + encodeURIComponent(banner.textContent))).observe(banner, { childList: true });`)
					return false
				}
				pages.ServeHTTP(w, r)
				said, _ := url.QueryUnescape(r.URL.RawQuery)
				return r.URL.Path == "/seen" && strings.Contains(said, c.want)
			})
		})
	}
}

// TestForm: a real browser sends the form of a change so that it is taken. A script of the test fills it in.
func TestForm(t *testing.T) {
	t.Parallel()
	posted := func(w http.ResponseWriter, r *http.Request, pages http.Handler) bool {
		if r.URL.Path == "/script.js" {
			_, _ = io.WriteString(w, `const text = document.querySelector("textarea"); if (!text.value) { text.value = "kind: NetworkPolicy"; text.form.submit(); }`)
			return false
		}
		record := httptest.NewRecorder()
		pages.ServeHTTP(record, r)
		for name, values := range record.Header() {
			w.Header()[name] = values
		}
		w.WriteHeader(record.Code)
		_, _ = w.Write(record.Body.Bytes())
		if r.Method == http.MethodPost && (record.Code != http.StatusOK || !strings.Contains(record.Body.String(), "shop/open")) {
			t.Errorf("%d with Origin %q: %s", record.Code, r.Header.Get("Origin"), record.Body)
		}
		return r.Method == http.MethodPost
	}
	a := shop()
	a.answers["preview"] = previewedJSON
	opened(t, a, whatIfPath, posted)
}

// opened opens a page in a browser until a request is the one that is wanted.
func opened(t *testing.T, a *agents, path string, serves func(http.ResponseWriter, *http.Request, http.Handler) bool) {
	t.Helper()
	program := browser(t)
	wanted := make(chan struct{}, 100)
	s := serve(t, a, func(pages http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if serves(w, r, pages) {
				wanted <- struct{}{}
			}
		})
	})
	ctx, stop := context.WithCancel(t.Context())
	c := exec.CommandContext(ctx, program, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--user-data-dir="+testbrowser.Profile(t),
		"--remote-debugging-port=0", s.URL+path+"?token="+s.token)
	c.Cancel = func() error { return c.Process.Signal(unix.SIGTERM) } // it ends its processes, which write into the profile
	c.WaitDelay = 20 * time.Second
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		stop()
		_ = c.Wait() // it was ended
	}()
	select {
	case <-wanted:
	case <-time.After(2 * time.Minute):
		t.Error("the browser does not ask for it")
	}
}

// inlined returns the page without script, with its style inside.
func (s site) inlined(t *testing.T, page string) string {
	t.Helper()
	style := s.get(t, "/style.css")
	page = strings.Replace(page, `<link rel="stylesheet" href="/style.css">`, "<style>"+style+"</style>", 1)
	page = strings.Replace(page, `<script src="/script.js" defer></script>`, "", 1)
	return regexp.MustCompile(`<noscript>.*?</noscript>`).ReplaceAllString(page, "")
}

// probe looks at frames of 390 and 1280 pixels.
const probe = `
window.onload = () => {
  const all = [];
  for (const frame of document.querySelectorAll("iframe")) {
    const page = frame.contentDocument, view = frame.contentWindow, found = [];
    const wide = page.documentElement.clientWidth;
    if (page.documentElement.scrollWidth > wide) found.push("the page is " + page.documentElement.scrollWidth + " wide");
    const rgb = text => text.match(/[\d.]+/g).map(Number);
    const light = c => c.slice(0, 3).map(v => v / 255).map(v => v <= .03928 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4).reduce((s, v, i) => s + v * [.2126, .7152, .0722][i], 0);
    let texts = 0;
    for (const e of page.querySelectorAll("body *")) {
      const r = e.getBoundingClientRect(), inBox = e.closest(".scroll");
      if (!r.width || e.closest("details:not([open])") && !e.closest("summary")) continue;
      if ((!inBox || e === inBox) && (r.right > wide + .5 || r.left < -.5)) found.push("outside of the page: " + e.tagName + " " + e.textContent.trim().slice(0, 60));
      if (![...e.childNodes].some(n => n.nodeType === 3 && n.textContent.trim())) continue;
      texts++;
      let at = e, back;
      do { back = rgb(view.getComputedStyle(at).backgroundColor); at = at.parentElement; } while (at && back[3] === 0);
      if (back[3] === 0) back = rgb(view.getComputedStyle(page.body).backgroundColor);
      const [a, b] = [light(rgb(view.getComputedStyle(e).color)), light(back)].sort((x, y) => y - x), c = (a + .05) / (b + .05);
      if (c < 4.5) found.push("contrast " + c.toFixed(1) + ": " + e.tagName + " " + e.className + " " + e.textContent.trim().slice(0, 40));
    }
    all.push({found, texts, width: wide, dark: light(rgb(view.getComputedStyle(page.body).backgroundColor)) < .2});
  }
  const out = document.createElement("pre");
  out.id = "findings";
  out.textContent = JSON.stringify(all);
  document.body.append(out);
};`

type findings struct {
	Found        []string
	Texts, Width int
	Dark         bool
}

// lookAt opens pages in frames of all widths, because the window of a browser may not be as narrow as a telephone. Nothing in the frames may run.
func lookAt(t *testing.T, program string, pages []string, dark bool) []findings {
	t.Helper()
	text := "<!DOCTYPE html><meta charset=utf-8>"
	for i := range len(pages) * len(widths) {
		text += fmt.Sprintf(`<iframe sandbox="allow-same-origin" width="%d" height="900" style="border:0" srcdoc="%s"></iframe>`, widths[i%len(widths)], html.EscapeString(pages[i/len(widths)]))
	}
	path := filepath.Join(t.TempDir(), "frame.html")
	if err := os.WriteFile(path, []byte(text+"<script>"+probe+"</script>"), 0o600); err != nil {
		t.Fatal(err)
	}
	m := regexp.MustCompile(`(?s)<pre id="findings">(.*?)</pre>`).FindStringSubmatch(dump(t, program, "file://"+path, dark))
	if m == nil {
		t.Fatal("the browser reports nothing")
	}
	var all []findings
	if err := json.Unmarshal([]byte(html.UnescapeString(m[1])), &all); err != nil || len(all) != len(pages)*len(widths) {
		t.Fatalf("%v: %s", err, m[1])
	}
	return all
}

// dump returns the document that a browser has made of a page.
func dump(t *testing.T, program, address string, dark bool) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	scheme := 1
	if dark {
		scheme = 0
	}
	c := exec.CommandContext(ctx, program, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--user-data-dir="+testbrowser.Profile(t),
		"--window-size=1400,1000", fmt.Sprintf("--blink-settings=preferredColorScheme=%d", scheme), "--dump-dom", address)
	c.WaitDelay = time.Second
	out, err := c.Output()
	if err != nil {
		t.Fatalf("%s: %v", program, err)
	}
	return string(out)
}

func browser(t *testing.T) string {
	t.Helper()
	if testing.Short() {
		t.Skip("-short: the pages are not opened in a browser")
	}
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	t.Skip("no chromium here: the pages are not opened in a browser")
	return ""
}
