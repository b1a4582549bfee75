package ui

import (
	"bufio"
	"context"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestOnlyItsOwn: requests without the token, by another name, from other pages, or that would change something get no page.
func TestOnlyItsOwn(t *testing.T) {
	t.Parallel()
	s := serve(t, shop())
	for name, c := range map[string]struct {
		method, path string
		change       func(*http.Request)
		want         int
	}{
		"as it should be":            {want: http.StatusOK},
		"no cookie":                  {change: func(r *http.Request) { r.Header.Del("Cookie") }, want: http.StatusUnauthorized},
		"another token":              {change: func(r *http.Request) { r.Header.Set("Cookie", s.cookie()+"=x") }, want: http.StatusUnauthorized},
		"another token in the path":  {path: "/?token=x", change: func(r *http.Request) { r.Header.Del("Cookie") }, want: http.StatusUnauthorized},
		"files need the token":       {path: "/style.css", change: func(r *http.Request) { r.Header.Del("Cookie") }, want: http.StatusUnauthorized},
		"events need the token":      {path: "/events", change: func(r *http.Request) { r.Header.Del("Cookie") }, want: http.StatusUnauthorized},
		"another name":               {change: func(r *http.Request) { r.Host = "evil.example" }, want: http.StatusMisdirectedRequest},
		"another port":               {change: func(r *http.Request) { r.Host = "127.0.0.1:1" }, want: http.StatusMisdirectedRequest},
		"another origin":             {change: func(r *http.Request) { r.Header.Set("Origin", "http://evil.example") }, want: http.StatusForbidden},
		"no origin but null":         {change: func(r *http.Request) { r.Header.Set("Origin", "null") }, want: http.StatusForbidden},
		"fetched by another site":    {change: func(r *http.Request) { r.Header.Set("Sec-Fetch-Site", "cross-site") }, want: http.StatusForbidden},
		"embedded by another port":   {change: func(r *http.Request) { r.Header.Set("Sec-Fetch-Site", "same-site") }, want: http.StatusForbidden},
		"linked by another port":     {change: func(r *http.Request) { loadFor(r, "same-site", "document") }, want: http.StatusOK},
		"in a frame of another port": {change: func(r *http.Request) { loadFor(r, "same-site", "iframe") }, want: http.StatusForbidden},
		"in a frameset":              {change: func(r *http.Request) { loadFor(r, "same-origin", "frame") }, want: http.StatusForbidden},
		"an embed":                   {path: "/why", change: func(r *http.Request) { loadFor(r, "same-site", "embed") }, want: http.StatusForbidden},
		"an object":                  {path: "/style.css", change: func(r *http.Request) { loadFor(r, "none", "object") }, want: http.StatusForbidden},
		"POST":                       {method: http.MethodPost, want: http.StatusMethodNotAllowed},
		"POST to another page":       {method: http.MethodPost, path: "/denied", want: http.StatusMethodNotAllowed},
		"PUT":                        {method: http.MethodPut, path: whatIfPath, want: http.StatusMethodNotAllowed},
		"HEAD":                       {method: http.MethodHead, want: http.StatusMethodNotAllowed},
		"OPTIONS":                    {method: http.MethodOptions, want: http.StatusMethodNotAllowed},
		"the form":                   {method: http.MethodPost, path: whatIfPath, want: http.StatusOK},
		"the form without an origin": {method: http.MethodPost, path: whatIfPath, change: func(r *http.Request) { r.Header.Del("Origin") }, want: http.StatusForbidden},
		"the form of another origin": {method: http.MethodPost, path: whatIfPath, change: func(r *http.Request) { r.Header.Set("Origin", "http://evil.example") }, want: http.StatusForbidden},
		"a packet without an origin": {method: http.MethodPost, path: tracePath, change: func(r *http.Request) { r.Header.Del("Origin") }, want: http.StatusForbidden},
		"a packet of another origin": {method: http.MethodPost, path: tracePath, change: func(r *http.Request) { r.Header.Set("Origin", "http://evil.example") }, want: http.StatusForbidden},
		"no such page":               {path: "/nosuch", want: http.StatusBadRequest},
	} {
		if c.method == "" {
			c.method = http.MethodGet
		}
		if c.path == "" {
			c.path = "/"
		}
		r := s.request(t, c.method, c.path, nil)
		if c.change != nil {
			c.change(r)
		}
		answer, text := s.do(t, r)
		if answer.StatusCode != c.want {
			t.Errorf("%s: %s, want %d: %.200s", name, answer.Status, c.want, text)
		}
		h := answer.Header
		if h.Get("Content-Security-Policy") != policy || h.Get("Access-Control-Allow-Origin") != "" || h.Get("X-Content-Type-Options") != "nosniff" || h.Get("Cache-Control") != "no-store" {
			t.Errorf("%s: headers %v", name, h)
		}
		if answer.StatusCode == http.StatusUnauthorized && strings.Contains(text, "shop") {
			t.Errorf("%s: it says something: %s", name, text)
		}
	}
	for _, want := range []string{"default-src 'none'", "script-src 'self'", "frame-ancestors 'none'"} {
		if !strings.Contains(policy, want) || strings.Contains(policy, "unsafe") {
			t.Errorf("policy %q lacks %s", policy, want)
		}
	}
}

// loadFor makes a request as of a browser that loads a page for another one.
func loadFor(r *http.Request, site, destination string) {
	r.Header.Set("Sec-Fetch-Site", site)
	r.Header.Set("Sec-Fetch-Mode", "navigate")
	r.Header.Set("Sec-Fetch-Dest", destination)
}

// TestToken: the token of the printed address becomes a cookie, and leaves the address.
func TestToken(t *testing.T) {
	t.Parallel()
	s := serve(t, shop())
	r := s.request(t, http.MethodGet, "/pod/shop/db?x=1&token="+s.token, nil)
	r.Header.Del("Cookie")
	answer, _ := s.do(t, r)
	cookies := answer.Cookies()
	if answer.StatusCode != http.StatusSeeOther || answer.Header.Get("Location") != "/pod/shop/db?x=1" || len(cookies) != 1 {
		t.Fatalf("%s, %v", answer.Status, answer.Header)
	}
	if c := cookies[0]; c.Value != s.token || !c.HttpOnly || c.SameSite != http.SameSiteStrictMode || c.Domain != "" {
		t.Errorf("%+v", c)
	}
	// No address leads to another host.
	r = s.request(t, http.MethodGet, "//evil.example/?token="+s.token, nil)
	if answer, _ := s.do(t, r); strings.HasPrefix(answer.Header.Get("Location"), "//") {
		t.Errorf("it leads to %s", answer.Header.Get("Location"))
	}
	if other := serve(t, shop()); other.token == s.token || len(s.token) < 26 {
		t.Errorf("tokens %q and %q", s.token, other.token)
	}
}

// TestEvents: the browser hears of a new state without asking.
func TestEvents(t *testing.T) {
	t.Parallel()
	s := serve(t, shop())
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	answer, err := http.DefaultClient.Do(s.request(t, http.MethodGet, "/events", nil).WithContext(ctx))
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	lines := bufio.NewScanner(answer.Body)
	seen := map[string]bool{}
	for len(seen) < 2 && lines.Scan() {
		if text, is := strings.CutPrefix(lines.Text(), "data: "); is {
			seen[text] = true
		}
	}
	if len(seen) < 2 || answer.Header.Get("Content-Type") != "text/event-stream" {
		t.Errorf("%v, %v, %v", seen, answer.Header, lines.Err())
	}
}

// TestCommand: it prints an address with the token on 127.0.0.1, serves there, and ends when it is interrupted; --once writes one file.
func TestCommand(t *testing.T) {
	t.Parallel()
	reader, writer, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	c := Command(shop())
	c.SetArgs([]string{})
	c.SetOut(writer)
	ended := make(chan error, 1)
	go func() { ended <- c.ExecuteContext(ctx) }()
	line, err := bufio.NewReader(reader).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	u, err := url.Parse(strings.TrimSpace(line))
	if err != nil || u.Hostname() != "127.0.0.1" || len(u.Query().Get("token")) < 26 {
		t.Fatalf("%q, %v", line, err)
	}
	r, _ := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if answer, err := http.DefaultTransport.RoundTrip(r); err != nil || answer.StatusCode != http.StatusSeeOther {
		t.Errorf("%v, %v", answer, err)
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	path := filepath.Join(t.TempDir(), "report.html")
	c = Command(shop())
	c.SilenceErrors, c.SilenceUsage = true, true
	c.SetArgs([]string{"--once", "--out", path})
	if err := c.ExecuteContext(t.Context()); err == nil || !strings.Contains(err.Error(), "without 1 of 2 nodes") {
		t.Fatalf("a node gave no answer: %v", err)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"networkpolicy/shop/db-from-web", "5432", "NO ANSWER", "SHA-256", "shop/x is quarantined", "it is odd", ">120<"} {
		if !strings.Contains(string(text), want) {
			t.Errorf("the report lacks %q", want)
		}
	}
	for _, not := range []string{"<script", "href=", "src="} {
		if strings.Contains(string(text), not) {
			t.Errorf("the report has %q", not)
		}
	}
	for _, args := range [][]string{{"--once"}, {"--out", path}} {
		c = Command(shop())
		c.SilenceErrors, c.SilenceUsage = true, true
		if c.SetArgs(args); c.ExecuteContext(t.Context()) == nil {
			t.Errorf("%v is taken", args)
		}
	}
}
