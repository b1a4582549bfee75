package serviceproxy

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"sync"
	"time"

	probes "github.com/felixlike/felixlike/felixlike/health"
	"github.com/felixlike/felixlike/model"
)

const (
	// listenRetry is the time between two tries to listen on a port in use.
	listenRetry = 10 * time.Second
	// answerTime bounds the wait for the driver's loop. Load balancers give up after some seconds.
	answerTime = 2 * time.Second
	// healthyTime is how long an answer of the loop counts: anybody may ask, and must not keep the loop busy.
	healthyTime = 200 * time.Millisecond
)

// health answers health checks of load balancers on healthCheckNodePorts, as kube-proxy does.
type health struct {
	addresses []netip.Prefix
	healthy   func(context.Context) error
	log       *slog.Logger
	wake      chan struct{}

	// asking guards last, the last answer of healthy, and when it came.
	asking sync.Mutex
	last   error
	asked  time.Time

	mu sync.Mutex
	// services are by port; failed says why a port is not open.
	services map[uint16]model.ServiceHealth
	failed   map[uint16]error
}

func newHealth(addresses []netip.Prefix, healthy func(context.Context) error, log *slog.Logger) *health {
	return &health{addresses: addresses, healthy: healthy, log: log, wake: make(chan struct{}, 1), services: map[uint16]model.ServiceHealth{}, failed: map[uint16]error{}}
}

// set takes all Services with a port, sorted. The API server gives a port to one Service.
func (h *health) set(all []model.ServiceHealth) {
	h.mu.Lock()
	defer h.mu.Unlock()
	clear(h.services)
	for _, s := range slices.Backward(all) {
		h.services[s.Port] = s
	}
	select {
	case h.wake <- struct{}{}:
	default:
	}
}

// problems names the ports that cannot be opened.
func (h *health) problems() (all []model.Problem) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, port := range slices.Sorted(maps.Keys(h.failed)) {
		if s, wanted := h.services[port]; wanted {
			all = append(all, model.Problem{Object: serviceRef(s.Namespace, s.Name), Field: "spec.healthCheckNodePort", Reason: fmt.Sprintf("not answered: %v", h.failed[port])})
		}
	}
	return all
}

// run keeps the ports open until ctx ends.
func (h *health) run(ctx context.Context) error {
	open := map[uint16]*http.Server{}
	defer func() {
		for _, s := range open {
			_ = s.Close()
		}
	}()
	for {
		var again <-chan time.Time
		if h.listen(ctx, open) {
			again = time.After(listenRetry)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-h.wake:
		case <-again:
		}
	}
}

// listen opens and closes ports. It reports whether one failed.
func (h *health) listen(ctx context.Context, open map[uint16]*http.Server) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	for port, s := range open {
		if _, wanted := h.services[port]; !wanted {
			_ = s.Close()
			delete(open, port)
		}
	}
	clear(h.failed)
	for port := range h.services {
		if open[port] != nil {
			continue
		}
		l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", fmt.Sprintf(":%d", port))
		if err != nil {
			h.failed[port] = err
			continue
		}
		s := &http.Server{Handler: h.handler(port), ReadHeaderTimeout: 5 * time.Second, IdleTimeout: 30 * time.Second, MaxHeaderBytes: 8 << 10, ErrorLog: slog.NewLogLogger(h.log.Handler(), slog.LevelDebug)}
		open[port] = s
		go func() { _ = s.Serve(probes.Limit(admitting{l, h.addresses})) }() // it ends when the server is closed
	}
	return len(h.failed) > 0
}

// admitting closes connections to other addresses than those of nodePortAddresses.
type admitting struct {
	net.Listener
	addresses []netip.Prefix
}

// Accept returns the next connection to an admitted address.
func (a admitting) Accept() (net.Conn, error) {
	for {
		conn, err := a.Listener.Accept()
		if err != nil || a.admits(conn) {
			return conn, err
		}
		_ = conn.Close()
	}
}

func (a admitting) admits(conn net.Conn) bool {
	at, ok := conn.LocalAddr().(*net.TCPAddr)
	return len(a.addresses) == 0 || ok && slices.ContainsFunc(a.addresses, func(p netip.Prefix) bool { return p.Contains(at.AddrPort().Addr().Unmap()) })
}

// answer is the body of an answer.
type answer struct {
	Service struct {
		Namespace string `json:"namespace"`
		Name      string `json:"name"`
	} `json:"service"`
	LocalEndpoints      int  `json:"localEndpoints"`
	ServiceProxyHealthy bool `json:"serviceProxyHealthy"`
}

// serves reports whether this node serves Services.
func (h *health) serves(ctx context.Context) bool {
	h.asking.Lock()
	defer h.asking.Unlock()
	if time.Since(h.asked) > healthyTime {
		h.last, h.asked = h.healthy(ctx), time.Now()
	}
	return h.last == nil
}

func (h *health) handler(port uint16) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		h.mu.Lock()
		s := h.services[port]
		h.mu.Unlock()
		// Others get the same answer, also if this client leaves.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), answerTime)
		defer cancel()
		var a answer
		a.Service.Namespace, a.Service.Name, a.LocalEndpoints = s.Namespace, s.Name, s.LocalEndpoints
		a.ServiceProxyHealthy = h.serves(ctx)
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("X-Content-Type-Options", "nosniff")
		w.Header().Set("X-Load-Balancing-Endpoint-Weight", strconv.Itoa(s.LocalEndpoints))
		if s.LocalEndpoints == 0 || !a.ServiceProxyHealthy {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
		out := json.NewEncoder(w)
		out.SetIndent("", "\t")
		_ = out.Encode(a) // the client may be gone
	}
}
