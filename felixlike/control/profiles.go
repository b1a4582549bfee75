package control

import (
	"net/http"
	"net/http/pprof"
	"strings"
)

// profilesPath serves the profiles of Go's runtime, for go tool pprof: heap, goroutine,
// allocs, and profile, which is that of the CPU. As all of the API it is for root only.
const profilesPath = "/" + Version + "/debug/pprof/"

// profile answers with a profile.
func profile(w http.ResponseWriter, r *http.Request) {
	switch name := strings.TrimPrefix(r.URL.Path, profilesPath); name {
	case "profile":
		pprof.Profile(w, r)
	case "trace":
		pprof.Trace(w, r)
	default:
		pprof.Handler(name).ServeHTTP(w, r) // it refuses unknown names
	}
}
