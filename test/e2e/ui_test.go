package e2e

import (
	"bufio"
	"errors"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/felixlike/felixlike/felixlike/config"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/test/eventually"
	"github.com/felixlike/felixlike/test/lab"
)

// pagesOf runs felixctl ui, and returns a function that gets its pages: of a form, if there is one.
func pagesOf(t *testing.T, args ...string) func(path string, form url.Values) string {
	t.Helper()
	command := exec.Command(filepath.Join(buildDir, "felixctl"), append([]string{"ui"}, args...)...)
	out, err := command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(command.Process.Signal(os.Interrupt), command.Wait()); err != nil {
			t.Errorf("felixctl ui: %v", err)
		}
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	first, err := url.Parse(strings.TrimSpace(line))
	if err != nil {
		t.Fatal(err)
	}
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	client := &http.Client{Jar: jar}
	get := func(address string, form url.Values) string {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, address, nil)
		if form != nil {
			r, err = http.NewRequestWithContext(t.Context(), http.MethodPost, address, strings.NewReader(form.Encode()))
		}
		if err != nil {
			t.Fatal(err)
		}
		if form != nil {
			r.Header.Set("Origin", "http://"+first.Host)
			r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		}
		answer, err := client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer answer.Body.Close()
		text, err := io.ReadAll(answer.Body)
		if err != nil || answer.StatusCode != http.StatusOK {
			t.Fatalf("%s: %s, %v\n%s", address, answer.Status, err, text)
		}
		return string(text)
	}
	get(first.String(), nil)
	return func(path string, form url.Values) string { return get("http://"+first.Host+path, form) }
}

// TestPages asks real agents by felixctl ui: the pages show the verdicts that packets have, what was denied, connections that a change would not
// allow, and a node without an agent as a gap.
func TestPages(t *testing.T) {
	t.Parallel()
	inEachPlace(t, func(t *testing.T, l *lab.Lab) {
		set(t, l, state(t, threeNodes, onlyFromC))
		page := pagesOf(t, "--lab", l.Name())
		has := func(path string, form url.Values, wants ...string) {
			t.Helper()
			text := page(path, form)
			for _, want := range wants {
				if !strings.Contains(text, want) {
					t.Errorf("%s lacks %q:\n%s", path, want, text)
				}
			}
		}
		has("/", nil, "<b>Ready</b> 3 of 3 nodes")
		conn := dial(t, l, "c", "a", model.IPv4)
		talk(t, conn, "before pages are asked")
		expect(t, l, false, "x/b", "x/a", model.TCP, 80)
		has("/pod/x/a", nil, "networkpolicy/x/only-from-c ingress[0] allows it", `href="/pod/x/c"`)
		has("/why?from=x/c&to=x/a&port=80/tcp", nil, "<b>allowed</b>", "steps")
		has("/why?from=x/b&to=x/a&port=80/tcp", nil, "<b>denied</b>", "x/only-from-c")
		has("/what-if", url.Values{"yaml": {onlyFromB}}, "networkpolicy/x/only-from-c</b> changed", "tcp/81", `<a href="/pod/x/c">x/c</a><td><a href="/pod/x/a">x/a</a> tcp/80`)
		has("/policies", nil, "x/only-from-c")
		has("/backends", nil, "node1", "node2", "node3")
		if text := page("/backends?prove=wanted", nil); strings.Count(text, `<td class="good">equal`) != 3 {
			t.Errorf("what is programmed is not what the policies want:\n%s", text)
		}
		for _, backend := range config.BackendNames() {
			if text := page("/matrix?backend="+backend, nil); !strings.Contains(text, "No cell of this page is known to differ under "+backend) {
				t.Errorf("it is not programmed as %s would:\n%s", backend, text)
			}
		}
		// The pages ask again after some seconds, and the history has a packet once its report has come. It has a sample of the packets.
		eventually.True(t, "the denied packet is on the page", func() bool {
			expect(t, l, false, "x/b", "x/a", model.TCP, 80)
			return strings.Contains(page("/denied?pod=x/b", nil), "x/only-from-c")
		})
		has("/matrix", nil, `class="p">80`)
		if err := l.Node("node3").KillAgent(); err != nil {
			t.Fatal(err)
		}
		eventually.True(t, "the missing agent is on the page", func() bool { return strings.Contains(page("/", nil), "<b>NO ANSWER</b> 2 of 3 nodes") })
		has("/pod/x/a", nil, "networkpolicy/x/only-from-c ingress[0] allows it")
		talk(t, conn, "after a preview")
	})
}
