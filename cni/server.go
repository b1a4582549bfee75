package cni

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"golang.org/x/net/netutil"
	"google.golang.org/grpc"
	"google.golang.org/grpc/keepalive"

	"github.com/felixlike/felixlike/cni/cniv1"
	"github.com/felixlike/felixlike/internal/panics"
	"github.com/felixlike/felixlike/internal/rootsocket"
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
	// maxConnections bounds the plugins at a time; more of them wait. A node has some
	// hundred pods, each of which the runtime adds by a process of its own.
	maxConnections = 512
	// greetTimeout ends connections that do not begin to speak, idleTimeout those that
	// ask for nothing any more.
	greetTimeout = 10 * time.Second
	idleTimeout  = 30 * time.Second
	// drainTime is how long requests may go on once the agent ends.
	drainTime = 2 * time.Second
)

// Agent is the part of the agent that the server uses.
type Agent interface {
	// LocalNode returns this node, once it is known and has a bridge.
	LocalNode(ctx context.Context) (*model.Node, error)
	// WaitPod waits until this very attachment is known, so is the pod (the one
	// with the UID, if that is not empty), and its policy is in force. It fails at
	// once if that cannot be.
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
	// MTU returns that of pods, 0 while it is not known.
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
	cniv1.UnimplementedCNIServer
	opts ServerOptions
	ipam *ipam
	// pods are locked by pod.
	pods keyedMutex
	// sweeping is held for writing while leftovers are removed, for reading while a
	// sandbox is added or deleted.
	sweeping sync.RWMutex
	// wait is programWait, but for tests.
	wait time.Duration
	// db and attacher are there once Run has connected.
	db       *ovsdb.Client
	attacher *Attacher
	panics   panics.Log
	// names is for tests that cut the hashes.
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

	server := grpc.NewServer(grpc.ChainUnaryInterceptor(s.log, guarded), grpc.ConnectionTimeout(greetTimeout),
		grpc.KeepaliveParams(keepalive.ServerParameters{MaxConnectionIdle: idleTimeout}))
	cniv1.RegisterCNIServer(server, s)
	served := make(chan error, 1)
	go func() { served <- server.Serve(netutil.LimitListener(rootsocket.RootOnly(listener), maxConnections)) }()
	var fitting sync.WaitGroup
	defer fitting.Wait()
	fits, stop := context.WithCancel(ctx)
	defer stop()
	fitting.Go(func() { s.fitOffloads(fits) })
	fitting.Go(func() { newPorts(s).keep(fits) })
	s.opts.Log.Info("serving", "socket", s.opts.Socket)
	select {
	case err := <-served:
		return fmt.Errorf("cni socket %s: serve: %w", s.opts.Socket, err)
	case <-ctx.Done():
	}
	// Requests that wait would wait for an agent that is ending.
	grace := time.AfterFunc(drainTime, server.Stop)
	defer grace.Stop()
	server.GracefulStop()
	<-served
	return nil
}

// log logs the request, and gives errors the code that the plugin understands.
func (s *Server) log(ctx context.Context, request any, info *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
	began := time.Now()
	reply, err := handle(ctx, request)
	log := s.opts.Log.With("method", info.FullMethod, "took", time.Since(began))
	if r, ok := request.(interface{ GetSandbox() *cniv1.Sandbox }); ok {
		log = log.With("pod", podOf(r.GetSandbox()).String(), "sandbox", r.GetSandbox().GetContainerId())
	}
	if err != nil {
		s.panics.With(log, err).Error("request failed", "error", err)
		return nil, coded(err)
	}
	log.Debug("request done")
	return reply, nil
}

// guarded makes a panic the error of the request that met it.
func guarded(ctx context.Context, request any, _ *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (reply any, err error) {
	defer panics.Catch(&err)
	return handle(ctx, request)
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

// errSandbox says that a request's sandbox is not one that can be.
var errSandbox = errors.New("sandbox")
