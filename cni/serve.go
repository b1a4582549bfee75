package cni

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"sync"

	"github.com/felixlike/felixlike/cni/protocol"
	"github.com/felixlike/felixlike/internal/rootsocket"
	"github.com/felixlike/felixlike/internal/socketapi"
	"github.com/felixlike/felixlike/ovsfwd/ovsdb"
)

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

	var fitting sync.WaitGroup
	defer fitting.Wait()
	fits, stop := context.WithCancel(ctx)
	defer stop()
	fitting.Go(func() { s.fitOffloads(fits) })
	fitting.Go(func() { newPorts(s).keep(fits) })
	return s.serve(ctx, listener, s.routes())
}

// serve serves the routes until ctx ends.
func (s *requests) serve(ctx context.Context, listener net.Listener, routes []socketapi.Route) error {
	server := socketapi.NewServer(socketapi.Config{
		Version: protocol.Version, Routes: routes, MaxBody: maxBody, MaxConnections: maxConnections, Drain: drainTime, Finish: undoTimeout,
		CodeOf: codeOf, Done: s.done, HTTP2: http.HandlerFunc(s.refuseGRPC), Log: s.opts.Log,
	})
	s.opts.Log.Info("serving", "socket", s.opts.Socket)
	if err := server.Run(ctx, listener); err != nil {
		return fmt.Errorf("cni socket %s: %w", s.opts.Socket, err)
	}
	return nil
}

func (s *Server) routes() []socketapi.Route {
	return []socketapi.Route{
		socketapi.Post(protocol.AddPath, s.Add),
		socketapi.Post(protocol.ChainPath, refuseChain),
		socketapi.Post(protocol.DelPath, s.Del),
		socketapi.Post(protocol.CheckPath, s.Check),
		socketapi.Post(protocol.StatusPath, s.Status),
		socketapi.Post(protocol.GCPath, s.GC),
	}
}

// refuseChain refuses a plugin that follows another one.
func refuseChain(context.Context, *protocol.ChainRequest) (protocol.Empty, error) {
	return protocol.Empty{}, fmt.Errorf("%w: felixlike-cni makes the pod's interface, so it must be the first plugin of the list; only with trafficMode networkPolicyOnly it follows another one", errSandbox)
}

// done logs a request.
func (s *requests) done(c socketapi.Call) {
	log := s.opts.Log.With("method", c.Path, "took", c.Took)
	var sandbox protocol.Sandbox
	switch r := c.Request.(type) {
	case *protocol.SandboxRequest:
		sandbox = r.Sandbox
	case *protocol.CheckRequest:
		sandbox = r.Sandbox
	case *protocol.ChainRequest:
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
func (s *requests) refuseGRPC(w http.ResponseWriter, r *http.Request) {
	s.opts.Log.Warn("refused a plugin of an earlier release: it has to try again", "method", r.URL.Path)
	const unimplemented = "12"
	w.Header().Set("Content-Type", "application/grpc")
	w.Header().Set("Grpc-Status", unimplemented)
	w.Header().Set("Grpc-Message", "this agent serves version "+protocol.Version+" of the API only: try again when the new plugin is installed")
}
