package control

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/felixlike/felixlike/felixlike/health"
	"github.com/felixlike/felixlike/internal/panics"
	"github.com/felixlike/felixlike/internal/rootsocket"
	"github.com/felixlike/felixlike/internal/socketapi"
	"github.com/felixlike/felixlike/model"
)

const (
	// maxBody bounds a request: 1 MiB names some ten thousand pods.
	maxBody = 1 << 20
	// maxConnections bounds the callers at a time; more of them wait.
	maxConnections = 128
)

// Serve answers on the socket until ctx ends, then removes the socket. It creates the directory if it is
// missing (mode 0700). It fails at once if another agent serves there, and replaces the socket of a dead one.
func Serve(ctx context.Context, socketPath string, agent Agent, log *slog.Logger) error {
	listener, err := rootsocket.Listen(socketPath)
	if err != nil {
		return fmt.Errorf("control socket %s: %w", socketPath, err)
	}
	defer listener.Close()
	var caught panics.Log
	server := socketapi.NewServer(socketapi.Config{
		Version: Version, Routes: routes(agent), MaxBody: maxBody, MaxConnections: maxConnections, Strict: true, Log: log,
		Done: func(c socketapi.Call) {
			level := slog.LevelDebug
			switch {
			case c.Err == nil:
				return
			case panics.Stack(c.Err) != "":
				level = slog.LevelError
			}
			caught.With(log, c.Err).Log(ctx, level, "request refused", "method", c.Method, "path", c.Path, "code", c.Code, "error", c.Err)
		},
	})
	log.Info("serving", "socket", socketPath)
	if err := server.Run(ctx, listener); err != nil {
		return fmt.Errorf("control socket %s: %w", socketPath, err)
	}
	return nil
}

// routes map requests to calls of the agent.
func routes(agent Agent) []socketapi.Route {
	probes := socketapi.Raw(health.Probes(agent).ServeHTTP)
	return []socketapi.Route{
		socketapi.Get(statusPath, func(context.Context, url.Values) (Status, error) { return agent.Status(), nil }),
		socketapi.Get(objectsPath, plain(agent.Objects)),
		socketapi.Get(modelPath, plain(agent.Model)),
		socketapi.Get(hitsPath, plain(agent.Hits)),
		socketapi.Get(connectionsPath, plain(agent.Connections)),
		socketapi.Get(socketsPath, plain(agent.Sockets)),
		socketapi.Get(servicesPath, func(ctx context.Context, query url.Values) (Services, error) {
			return agent.Services(ctx, query.Get("name"))
		}),
		socketapi.Get(dropHistoryPath, plain(agent.DropHistory)),
		socketapi.Stream(dropsPath, func(w http.ResponseWriter, r *http.Request) error { return follow(agent.Drops, w, r) }),
		socketapi.Stream(loggedPath, func(w http.ResponseWriter, r *http.Request) error { return follow(agent.PolicyLog, w, r) }),
		socketapi.Post(syncPath, func(ctx context.Context, in *syncRequest) (revisionReply, error) {
			pods, err := in.pods()
			if err != nil {
				return revisionReply{}, err
			}
			programmed, err := agent.Sync(ctx, pods)
			return revisionReply{Revision: programmed}, err
		}),
		socketapi.Get(programmedPath, func(ctx context.Context, query url.Values) (revisionReply, error) {
			wanted, err := strconv.ParseUint(query.Get("revision"), 10, 64)
			if err != nil {
				return revisionReply{}, socketapi.Refuse(socketapi.Invalid, "revision %q: must be an unsigned number", query.Get("revision"))
			}
			programmed, err := agent.WaitProgrammed(ctx, wanted)
			return revisionReply{Revision: programmed}, err
		}),
		socketapi.Post(backendPath, func(ctx context.Context, in *backendRequest) (*backendRequest, error) {
			return in, agent.SetBackend(ctx, in.Backend)
		}),
		socketapi.Stream(profilesPath, socketapi.Raw(profile)),
		socketapi.Stream(health.LivePath, probes),
		socketapi.Stream(health.ReadyPath, probes),
	}
}

// plain is a call without parameters.
func plain[Out any](f func(context.Context) (Out, error)) func(context.Context, url.Values) (Out, error) {
	return func(ctx context.Context, _ url.Values) (Out, error) { return f(ctx) }
}

// pods returns the pods of the request.
func (r *syncRequest) pods() ([]model.PodID, error) {
	pods := make([]model.PodID, 0, len(r.Pods))
	for _, name := range r.Pods {
		pod, err := ParsePod(name)
		if err != nil {
			return nil, socketapi.Refuse(socketapi.Invalid, "request body: %w", err)
		}
		pods = append(pods, pod)
	}
	return pods, nil
}

// Agent is the server's view of the agent.
type Agent interface {
	// Agent answers the probes at health.LivePath and health.ReadyPath.
	health.Agent
	// Status returns a snapshot.
	Status() Status
	// Sync makes the datastore look again, waits until everything that it then holds, and every pod of the
	// list, is programmed, and returns the programmed revision. It fails if a quarantined object closes a
	// pod.
	Sync(ctx context.Context, pods []model.PodID) (uint64, error)
	// SetBackend moves policy to the named backend and waits until nothing is
	// left of the old one.
	SetBackend(ctx context.Context, name string) error
	// WaitProgrammed waits until the revision (or a later one) is programmed
	// and returns the one that is.
	WaitProgrammed(ctx context.Context, revision uint64) (uint64, error)
	// Objects returns the Kubernetes objects that policy is computed from.
	Objects(ctx context.Context) (Objects, error)
	// Model returns the computed policy and the other inputs of the dataplane.
	Model(ctx context.Context) (Model, error)
	// Hits returns the counters of the rules of this node's policies.
	Hits(ctx context.Context) (Hits, error)
	// Connections returns the connections of this node's pods that policy has let
	// through, as far as this node tracks them.
	Connections(ctx context.Context) ([]Connection, error)
	// Sockets returns the sockets of the node itself that listen or have a peer.
	Sockets(ctx context.Context) ([]Socket, error)
	// Services returns how this node serves all Services, or the one with the name namespace/name.
	Services(ctx context.Context, name string) (Services, error)
	// DropHistory returns the packets that policy denied in the last hour.
	DropHistory(ctx context.Context) (DropHistory, error)
	// Drops calls got for each packet that policy denies, until ctx ends or got fails. It calls got with nil
	// once the dataplane reports packets, and every alive while there are none.
	Drops(ctx context.Context, alive time.Duration, got func(*Drop) error) error
	// PolicyLog calls got for each packet that a rule with Log decides, until ctx ends or got fails. It calls
	// got with nil at once, and every alive while there are none.
	PolicyLog(ctx context.Context, alive time.Duration, got func(*Logged) error) error
}
