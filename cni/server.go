package cni

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/felixlike/felixlike/cni/protocol"
	"github.com/felixlike/felixlike/internal/panics"
	"github.com/felixlike/felixlike/internal/rootsocket"
	"github.com/felixlike/felixlike/internal/socketapi"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/ovsfwd/ovsdb"
)

const (
	// SocketName is the name of the CNI socket in the agent's run directory.
	SocketName = "cni.sock"

	// programWait bounds how long Add waits until the node is known, and then
	// until the pod's policy is in force. The runtime's own limit is minutes.
	programWait = 10 * time.Second
	// attachWait bounds how long the switch may take to open the pod's port. A
	// hundred at once take seconds on a busy machine.
	attachWait = 20 * time.Second
	// maxConnections bounds the plugins served at a time; more of them wait. A node has some
	// hundred pods, and the runtime starts one plugin process for each.
	maxConnections = 512
	// maxBody bounds a request: 4 MiB list some 38,000 attachments.
	maxBody = 4 << 20
	// drainTime is how long requests may go on once the agent ends.
	drainTime = 2 * time.Second
)

// Agent is the part of the agent that the server uses.
type Agent interface {
	// LocalNode returns this node, once it is known and has a bridge.
	LocalNode(ctx context.Context) (*model.Node, error)
	// WaitPod waits until this attachment and the pod (with this UID unless it is empty)
	// are known, and the pod's policy is in force. It fails at once if this cannot happen.
	WaitPod(ctx context.Context, attachment *model.Attachment, uid string) error
	// Available returns why no pod can be added to this node now, or nil.
	Available(ctx context.Context) error
}

// ServerOptions configure a Server.
type ServerOptions struct {
	// Socket is the path to serve at.
	Socket string
	// Bridge is the bridge to attach pods to, OVSDB the socket of its database.
	Bridge, OVSDB string
	// MTU returns the MTU of pods, 0 while it is not known.
	MTU func() int
	// PluginDir has the IPAM plugin host-local, IPAMDir its reservations
	// (DefaultIPAMDir if empty).
	PluginDir, IPAMDir string
	Agent              Agent
	// Waited gets the time that an Add waited for policy. It may be nil.
	Waited func(time.Duration)
	Log    *slog.Logger
}

// Server serves the CNI plugin. It reads the attachments from OVSDB and the kernel, and
// keeps a copy of OVSDB's records in files, in case another program removes a port.
type Server struct {
	opts ServerOptions
	ipam *ipam
	// pods are locked by pod.
	pods keyedMutex
	// sweeping is held for writing while leftovers are removed, for reading while a
	// sandbox is added or deleted.
	sweeping sync.RWMutex
	// wait is programWait; tests shorten it.
	wait time.Duration
	// db and attacher are there once Run has connected.
	db       *ovsdb.Client
	attacher *Attacher
	panics   panics.Log
	// names makes interface names and MAC addresses; tests shorten its hashes.
	names naming
}

// NewServer returns a server that does not run yet.
func NewServer(opts ServerOptions) *Server {
	if opts.Waited == nil {
		opts.Waited = func(time.Duration) {}
	}
	return &Server{opts: opts, wait: programWait, ipam: newIPAM(opts.PluginDir, opts.IPAMDir)}
}

// Run removes the unfinished attachments of an earlier agent, and serves until ctx
// ends. All threads of the process must be in the node's network namespace.
func (s *Server) Run(ctx context.Context) error {
	listener, err := rootsocket.Listen(s.opts.Socket)
	if err != nil {
		return fmt.Errorf("cni socket %s: %w", s.opts.Socket, err)
	}
	defer listener.Close()
	s.db, err = ovsdb.Open(ctx, ovsdb.Config{Socket: s.opts.OVSDB, Bridge: s.opts.Bridge})
	if err != nil {
		return fmt.Errorf("cni: %w", err)
	}
	defer s.db.Close()
	s.attacher = NewAttacher(s.db)
	s.attacher.names = s.names
	s.tidy(ctx)

	server := socketapi.NewServer(socketapi.Config{
		Version: protocol.Version, Routes: s.routes(), MaxBody: maxBody, MaxConnections: maxConnections, Drain: drainTime, Finish: undoTimeout,
		CodeOf: codeOf, Done: s.done, HTTP2: http.HandlerFunc(s.refuseGRPC), Log: s.opts.Log,
	})
	var fitting sync.WaitGroup
	defer fitting.Wait()
	fits, stop := context.WithCancel(ctx)
	defer stop()
	fitting.Go(func() { s.fitOffloads(fits) })
	fitting.Go(func() { newPorts(s).keep(fits) })
	s.opts.Log.Info("serving", "socket", s.opts.Socket)
	if err := server.Run(ctx, listener); err != nil {
		return fmt.Errorf("cni socket %s: %w", s.opts.Socket, err)
	}
	return nil
}

func (s *Server) routes() []socketapi.Route {
	return []socketapi.Route{
		socketapi.Post(protocol.AddPath, s.Add),
		socketapi.Post(protocol.DelPath, s.Del),
		socketapi.Post(protocol.CheckPath, s.Check),
		socketapi.Post(protocol.StatusPath, s.Status),
		socketapi.Post(protocol.GCPath, s.GC),
	}
}

// done logs a request.
func (s *Server) done(c socketapi.Call) {
	log := s.opts.Log.With("method", c.Path, "took", c.Took)
	var sandbox protocol.Sandbox
	switch r := c.Request.(type) {
	case *protocol.SandboxRequest:
		sandbox = r.Sandbox
	case *protocol.CheckRequest:
		sandbox = r.Sandbox
	}
	if sandbox != (protocol.Sandbox{}) {
		log = log.With("pod", podOf(sandbox).String(), "sandbox", sandbox.ContainerID)
	}
	if c.Err != nil {
		s.panics.With(log, c.Err).Error("request failed", "error", c.Err)
		return
	}
	log.Debug("request done")
}

// refuseGRPC refuses a plugin of the release before protocol v2, which speaks gRPC. The
// code is gRPC's for an unknown call: on it, that plugin asks the runtime to try again.
func (s *Server) refuseGRPC(w http.ResponseWriter, r *http.Request) {
	s.opts.Log.Warn("refused a plugin of an earlier release: it has to try again", "method", r.URL.Path)
	const unimplemented = "12"
	w.Header().Set("Content-Type", "application/grpc")
	w.Header().Set("Grpc-Status", unimplemented)
	w.Header().Set("Grpc-Message", "this agent serves version "+protocol.Version+" of the API only: try again when the new plugin is installed")
}

// keyedMutex is a mutex a key.
type keyedMutex struct {
	mu   sync.Mutex
	held map[string]*heldMutex
}

type heldMutex struct {
	sync.Mutex
	users int
}

// lock waits for the key's mutex and returns the function that unlocks it.
func (k *keyedMutex) lock(key string) (unlock func()) {
	k.mu.Lock()
	if k.held == nil {
		k.held = map[string]*heldMutex{}
	}
	m := k.held[key]
	if m == nil {
		m = &heldMutex{}
		k.held[key] = m
	}
	m.users++
	k.mu.Unlock()
	m.Lock()
	return func() {
		m.Unlock()
		k.mu.Lock()
		defer k.mu.Unlock()
		if m.users--; m.users == 0 {
			delete(k.held, key)
		}
	}
}

// undo runs a cleaning function although ctx may have ended, for a bounded time.
func undo(ctx context.Context, clean func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTimeout)
	defer cancel()
	return clean(ctx)
}

// errSandbox is the error of a request with an invalid sandbox.
var errSandbox = errors.New("sandbox")
