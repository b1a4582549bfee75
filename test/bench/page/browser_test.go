package page

import (
	"context"
	"encoding/json"
	"fmt"
	"html"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	testbrowser "github.com/felixlike/felixlike/test/browser"
)

// probe finds content on the page that is wider than its place, and
// texts of a figure that cover each other. Chromium's window may not be
// as narrow as a telephone, so the page is looked at in a frame.
const probe = `
window.onload = () => {
  const frame = document.querySelector("iframe"), page = frame.contentDocument, view = frame.contentWindow, found = [];
  const say = e => (e.tagName + " " + e.textContent.trim().slice(0, 60));
  const inBox = e => e.closest(".scroll");
  const wide = page.documentElement.clientWidth;
  if (page.documentElement.scrollWidth > wide) found.push("the page is " + page.documentElement.scrollWidth + " wide");
  for (const e of page.querySelectorAll("body *")) {
    if (inBox(e) && !e.matches(".scroll") || e.closest("svg") && !e.matches("svg")) continue;
    const r = e.getBoundingClientRect();
    if (r.right > wide + 0.5 || r.left < -0.5) found.push("outside of the page: " + say(e));
    if (!e.matches(".scroll") && e.scrollWidth > e.clientWidth + 1 && view.getComputedStyle(e).overflowX !== "visible") found.push("cut off: " + say(e));
    if (!e.matches(".scroll, svg, html, body") && e.clientWidth && e.scrollWidth > e.clientWidth + 1) found.push("too wide for its box: " + say(e));
  }
  let texts = 0, smallest = 1e9;
  for (const svg of page.querySelectorAll("svg")) {
    const all = [...svg.querySelectorAll("text")].map(e => [e, e.getBoundingClientRect()]), whole = svg.getBoundingClientRect();
    texts += all.length;
    const title = svg.getAttribute("aria-label") + ": ";
    all.forEach(([e, r], i) => {
      smallest = Math.min(smallest, parseFloat(e.getAttribute("font-size")) * whole.width / svg.viewBox.baseVal.width);
      if (r.left < whole.left - 0.5 || r.right > whole.right + 0.5 || r.top < whole.top - 0.5 || r.bottom > whole.bottom + 0.5) found.push(title + "outside of the figure: " + say(e));
      for (const [o, q] of all.slice(i + 1)) {
        const x = Math.min(r.right, q.right) - Math.max(r.left, q.left), y = Math.min(r.bottom, q.bottom) - Math.max(r.top, q.top);
        // Boxes are as high as the font: lines that stand close share some of it.
        if (x > 0.5 && y > 4 * whole.width / svg.viewBox.baseVal.width) found.push(title + say(e) + " covers " + say(o));
      }
    });
  }
  const out = document.createElement("pre");
  out.id = "findings";
  out.textContent = JSON.stringify({found, texts, smallest, width: wide, figures: page.querySelectorAll("svg").length, tables: page.querySelectorAll("table").length});
  document.body.append(out);
};`

type findings struct {
	Found    []string
	Texts    int
	Smallest float64
	Width    int
	Figures  int
	Tables   int
}

// lookAt opens a page in a browser, in a frame of that width.
func lookAt(t *testing.T, browser, page string, width int) findings {
	t.Helper()
	dir := t.TempDir()
	frame := fmt.Sprintf(`<!DOCTYPE html><meta charset="utf-8"><body><iframe width="%d" height="900" style="border:0" srcdoc="%s"></iframe><script>%s</script>`, width, html.EscapeString(page), probe)
	path := filepath.Join(dir, "frame.html")
	if err := os.WriteFile(path, []byte(frame), 0o644); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	c := exec.CommandContext(ctx, browser, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--user-data-dir="+testbrowser.Profile(t),
		"--window-size=1400,1000", "--virtual-time-budget=10000", "--dump-dom", "file://"+path)
	c.WaitDelay = time.Second
	out, err := c.Output()
	if err != nil {
		t.Fatalf("%s: %v", browser, err)
	}
	m := regexp.MustCompile(`<pre id="findings">(.*)</pre>`).FindSubmatch(out)
	if m == nil {
		t.Fatalf("%s reports nothing: %.2000s", browser, out)
	}
	var f findings
	if err := json.Unmarshal([]byte(html.UnescapeString(string(m[1]))), &f); err != nil {
		t.Fatal(err)
	}
	return f
}

func browser(t *testing.T) string {
	t.Helper()
	if testing.Short() {
		t.Skip("-short: the layout of the page is not looked at")
	}
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	t.Skip("no chromium here: the layout of the page is not looked at")
	return ""
}

// TestLayout looks at the page as a reader would: nothing is cut off, no text
// covers another, figures can be read, on a telephone and at a desk.
func TestLayout(t *testing.T) {
	program := browser(t)
	for path, r := range reports(t) {
		page := written(t, r)
		_, sections := r.Sections()
		for _, width := range []int{400, 1280} {
			f := lookAt(t, program, page, width)
			if len(f.Found) > 0 {
				t.Errorf("%s at %d:\n%s", path, width, strings.Join(f.Found, "\n"))
			}
			if f.Width > width || f.Width < width-20 || f.Figures != len(Figures(r)) || f.Texts < 10*f.Figures || f.Tables == 0 || f.Tables > len(sections) {
				t.Errorf("%s at %d: %+v", path, width, f)
			}
			if f.Smallest < 10.5 {
				t.Errorf("%s at %d: the smallest text of a figure is %.1f pixels high", path, width, f.Smallest)
			}
		}
	}
}

// TestProbeFindsLayoutErrors: the probe sees each error of a bad page.
func TestProbeFindsLayoutErrors(t *testing.T) {
	program := browser(t)
	bad := `<!DOCTYPE html><body style="margin:0"><div style="width:500px">wide</div>
<svg viewBox="0 0 100 50" width="100" aria-label="bad"><text x="10" y="20" font-size="12">one</text><text x="14" y="22" font-size="12">two</text><text x="90" y="40" font-size="12">outside</text></svg>`
	all := strings.Join(lookAt(t, program, bad, 400).Found, "\n")
	for _, want := range []string{"the page is 500 wide", "outside of the page: DIV wide", "text one covers text two", "bad: outside of the figure: text outside"} {
		if !strings.Contains(all, want) {
			t.Errorf("%q is not among\n%s", want, all)
		}
	}
}
