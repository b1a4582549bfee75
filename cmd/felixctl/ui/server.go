package ui

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/subtle"
	"embed"
	"errors"
	"fmt"
	"html/template"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/felixlike/felixlike/internal/printable"
)

//go:embed assets
var assets embed.FS

// policy is the Content-Security-Policy of all answers: nothing but the server's own files, and no inline code.
const policy = "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"

// Bounds of requests.
const (
	maxForm     = 1 << 20
	pageTimeout = 2 * time.Minute
	formTimeout = 30 * time.Second
)

// server serves the pages to requests with its token.
type server struct {
	source
	prover      prover
	sending     sync.Mutex
	host, token string
	mux         *http.ServeMux
	templates   *template.Template
}

// newServer returns the server of the pages at an address.
func newServer(ctx context.Context, access Access, host string) (*server, error) {
	s := &server{source: source{access: access, life: ctx}, prover: prover{access: access, life: ctx, last: map[string]provedAt{}}, host: host, token: rand.Text(), mux: http.NewServeMux(), templates: parsed(podPath)}
	for _, name := range []string{"style.css", "script.js", "icon.svg"} {
		s.mux.HandleFunc("GET /"+name, func(w http.ResponseWriter, r *http.Request) { http.ServeFileFS(w, r, assets, "assets/"+name) })
	}
	s.mux.HandleFunc("GET /events", s.events)
	s.mux.HandleFunc("GET /pod", func(w http.ResponseWriter, r *http.Request) {
		namespace, name, _ := strings.Cut(r.FormValue("name"), "/")
		http.Redirect(w, r, (&url.URL{Path: "/pod/" + namespace + "/" + name}).String(), http.StatusSeeOther)
	})
	for pattern, of := range pages {
		s.mux.HandleFunc(pattern, s.page(of))
	}
	return s, nil
}

// cookie is the name of the cookie with the token. Cookies are for all ports of a host.
func (s *server) cookie() string { return "felixctl-ui-" + s.host[strings.LastIndex(s.host, ":")+1:] }

func (s *server) isToken(text string) bool {
	return subtle.ConstantTimeCompare([]byte(text), []byte(s.token)) == 1
}

// ServeHTTP refuses requests of others, and of other pages of this browser.
func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Content-Security-Policy", policy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "same-origin") // with no-referrer, browsers send a form with the Origin null
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cache-Control", "no-store")
	origin := r.Header.Get("Origin")
	posts := r.Method == http.MethodPost && (r.URL.Path == whatIfPath || r.URL.Path == tracePath)
	switch site := r.Header.Get("Sec-Fetch-Site"); {
	case r.Host != s.host: // another name may lead here: DNS rebinding
		http.Error(w, "unknown host", http.StatusMisdirectedRequest)
	case origin != "" && origin != "http://"+s.host, posts && origin == "":
		http.Error(w, "unknown origin", http.StatusForbidden)
	case site == "cross-site" || site == "same-site" && r.Header.Get("Sec-Fetch-Mode") != "navigate":
		http.Error(w, "asked by another page", http.StatusForbidden)
	case slices.Contains([]string{"iframe", "frame", "embed", "object", "fencedframe"}, r.Header.Get("Sec-Fetch-Dest")):
		http.Error(w, "not inside another page", http.StatusForbidden)
	case r.Method != http.MethodGet && !posts:
		h.Set("Allow", http.MethodGet)
		http.Error(w, "only GET", http.StatusMethodNotAllowed)
	case r.Method == http.MethodGet && s.isToken(r.URL.Query().Get("token")):
		http.SetCookie(w, &http.Cookie{Name: s.cookie(), Value: s.token, Path: "/", HttpOnly: true, SameSite: http.SameSiteStrictMode})
		q := r.URL.Query()
		q.Del("token")
		http.Redirect(w, r, (&url.URL{Path: "/" + strings.TrimLeft(r.URL.Path, "/"), RawQuery: q.Encode()}).String(), http.StatusSeeOther)
	default:
		c, err := r.Cookie(s.cookie())
		if err != nil || !s.isToken(c.Value) {
			http.Error(w, "open the address that felixctl ui has printed: it has the token", http.StatusUnauthorized)
			return
		}
		ctx, cancel := context.WithTimeout(r.Context(), pageTimeout)
		defer cancel()
		if r.URL.Path == "/events" {
			ctx = r.Context()
		}
		s.mux.ServeHTTP(w, r.WithContext(ctx))
	}
}

// view is what a template gets.
type view struct {
	Title, Path string
	Now         *snapshot
	Health      health
	// Live pages are loaded again when the cluster changes.
	Live bool
	// Once is set in the file of --once, which has Style inside.
	Once  bool
	Style template.CSS
	// Late is why Now is old.
	Late string
	// Fault is why there is no Body.
	Fault string
	// Template names the template of the Body.
	Template string
	Body     any
}

// page serves a page. Nothing in it is invisible, or changes the direction of the text beside it: a compromised node writes what it likes.
func (s *server) page(of pageOf) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		r.Body = http.MaxBytesReader(w, r.Body, maxForm)
		v := view{Title: "felixlike", Path: r.URL.Path}
		var now *snapshot
		err := readForm(w, r)
		if err == nil {
			now, err = s.get(r.Context())
		}
		if err == nil {
			v.Now, v.Health, v.Late = now, now.health(), s.late(now)
			err = of(&v, s, r)
		}
		status := http.StatusOK
		if err != nil {
			v.Fault = err.Error()
			status = http.StatusBadGateway
			if isUsage(err) {
				status = http.StatusBadRequest
			}
			if large := (*http.MaxBytesError)(nil); errors.As(err, &large) {
				status = http.StatusRequestEntityTooLarge
			}
		}
		var text bytes.Buffer
		if err := s.templates.ExecuteTemplate(&text, "page", v); err != nil {
			http.Error(w, "write the page: "+err.Error(), http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		w.WriteHeader(status)
		_, _ = io.WriteString(w, printable.Lines(text.String())) // the reader may be gone
	}
}

// readForm reads the form of a POST, which may not take its time.
func readForm(w http.ResponseWriter, r *http.Request) error {
	if r.Method != http.MethodPost {
		return nil
	}
	c := http.NewResponseController(w)
	_ = c.SetReadDeadline(time.Now().Add(formTimeout)) // what cannot have one, as in a test, needs none
	defer func() { _ = c.SetReadDeadline(time.Time{}) }()
	if err := r.ParseForm(); err != nil {
		return usage{fmt.Errorf("read the form: %w", err)}
	}
	return nil
}

// alive is how often the browser hears that the state is not old, or why it is.
const alive = 5 * time.Second

// events tells the browser when there is something new: the script then loads the live parts again. An event "state" says what is wrong.
func (s *server) events(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "text/event-stream")
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	var last, told time.Time
	for {
		now, err := s.get(r.Context())
		text := ""
		if time.Since(told) > alive {
			told = time.Now()
			state := ""
			if err != nil {
				state = err.Error()
			} else {
				state = s.late(now)
			}
			text = fmt.Sprintf("event: state\ndata: %s\n\n", strings.Join(strings.Fields(printable.Lines(state)), " "))
		}
		if err == nil && now.At != last {
			last = now.At
			text += fmt.Sprintf("data: %d\n\n", last.UnixNano())
		}
		if text != "" {
			if _, err := io.WriteString(w, text); err != nil || http.NewResponseController(w).Flush() != nil {
				return
			}
		}
		select {
		case <-r.Context().Done():
			return
		case <-tick.C:
		}
	}
}
