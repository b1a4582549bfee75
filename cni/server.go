package cni

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/felixlike/felixlike/internal/panics"
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
	requests
	ipam *ipam
	// db and attacher are there once Run has connected.
	db       *ovsdb.Client
	attacher *Attacher
	// names makes interface names and MAC addresses; tests shorten its hashes.
	names naming
}

// NewServer returns a server that does not run yet.
func NewServer(opts ServerOptions) *Server {
	return &Server{requests: newRequests(opts), ipam: newIPAM(opts.PluginDir, opts.IPAMDir)}
}

// requests is the part of a server of the CNI plugin that does not depend on who makes the pods' interfaces.
type requests struct {
	opts ServerOptions
	// pods are locked by pod.
	pods keyedMutex
	// sweeping is held for writing while leftovers are removed, for reading while a
	// sandbox is added or deleted.
	sweeping sync.RWMutex
	// wait is programWait; tests shorten it.
	wait   time.Duration
	panics panics.Log
}

func newRequests(opts ServerOptions) requests {
	if opts.Waited == nil {
		opts.Waited = func(time.Duration) {}
	}
	return requests{opts: opts, wait: programWait}
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

// errSandbox is the error of a request with an invalid sandbox.
var errSandbox = errors.New("sandbox")
