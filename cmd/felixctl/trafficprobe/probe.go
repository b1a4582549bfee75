// Package trafficprobe is the program of the pods by which kubectl felixlike check --traffic tests a
// cluster: felixctl traffic-probe serve answers on ports, felixctl traffic-probe send tries paths. It is
// hidden in felixctl, so the pods need no other image than the agents'. It is tested over real sockets.
package trafficprobe

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"
)

// CommandName is the command of felixctl.
const CommandName = "traffic-probe"

const (
	// tryTime bounds one try. The kernel sends the first SYN again after a second.
	tryTime = 2 * time.Second
	// patience bounds the tries of a path that is expected to be open: kube-proxy and DNS may
	// need seconds until they know a new Service.
	patience = 20 * time.Second
	// closedTries are the tries of a path that is expected to be closed.
	closedTries = 2
	pause       = 200 * time.Millisecond
	// longestName bounds a server's answer, which is its name.
	longestName = 256
)

// Path is one path to try.
type Path struct {
	// Open is whether the path is expected to be open.
	Open bool `json:"open"`
	// Address is a host and a port of TCP, or the name that Lookup looks up.
	Address string `json:"address"`
	Lookup  bool   `json:"lookup,omitempty"`
	// Silent says that the server at the other end does not answer with its name.
	Silent bool `json:"silent,omitempty"`
}

// Result is the result of a Path.
type Result struct {
	Open bool `json:"open"`
	// Detail is who answered, or why nobody did.
	Detail string `json:"detail"`
}

// Command returns the command, with its two subcommands.
func Command() *cobra.Command {
	root := &cobra.Command{Use: CommandName, Short: "Test programs of check --traffic", Hidden: true}
	root.AddCommand(&cobra.Command{
		Use: "serve ADDRESS...", Short: "Answer each connection with the name of this machine", Args: cobra.MinimumNArgs(1),
		RunE: func(c *cobra.Command, addresses []string) error {
			name, err := os.Hostname()
			if err != nil {
				return err
			}
			return serve(c.Context(), name, addresses, nil)
		},
	}, &cobra.Command{
		Use: "send PATHS", Short: "Try the paths, given as JSON, and print the results", Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			var paths []Path
			if err := json.Unmarshal([]byte(args[0]), &paths); err != nil {
				return fmt.Errorf("paths: %w", err)
			}
			return json.NewEncoder(c.OutOrStdout()).Encode(Send(c.Context(), paths))
		},
	})
	return root
}

// serve answers connections until ctx ends. It calls listening with the address of each listener.
func serve(ctx context.Context, name string, addresses []string, listening func(net.Addr)) error {
	g, ctx := errgroup.WithContext(ctx)
	for _, address := range addresses {
		l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
		if err != nil {
			return err
		}
		if listening != nil {
			listening(l.Addr())
		}
		g.Go(func() error { <-ctx.Done(); return l.Close() })
		g.Go(func() error {
			for {
				conn, err := l.Accept()
				if ctx.Err() != nil {
					return nil
				}
				if err != nil {
					return err
				}
				// A caller that is gone needs no answer.
				_, _ = io.WriteString(conn, name)
				_ = conn.Close()
			}
		})
	}
	return g.Wait()
}

// Send tries paths side by side and returns their results, in order.
func Send(ctx context.Context, paths []Path) []Result {
	results := make([]Result, len(paths))
	var all sync.WaitGroup
	for i, p := range paths {
		all.Go(func() { results[i] = p.try(ctx) })
	}
	all.Wait()
	return results
}

// try tries a path until it is as expected or the tries are used up.
func (p Path) try(ctx context.Context) (r Result) {
	end := time.Now().Add(patience)
	for tries := 1; ; tries++ {
		detail, err := p.once(ctx)
		if r = (Result{Open: err == nil, Detail: detail}); err != nil {
			r.Detail = reason(err)
		}
		if r.Open || !p.Open && tries >= closedTries || p.Open && time.Now().After(end) {
			return r
		}
		select {
		case <-ctx.Done():
			return r
		case <-time.After(pause):
		}
	}
}

func (p Path) once(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, tryTime)
	defer cancel()
	if p.Lookup {
		addresses, err := net.DefaultResolver.LookupHost(ctx, p.Address)
		return strings.Join(addresses, ", "), err
	}
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", p.Address)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	if p.Silent {
		return "connected", nil
	}
	if err := conn.SetDeadline(time.Now().Add(tryTime)); err != nil {
		return "", err
	}
	name, err := io.ReadAll(io.LimitReader(conn, longestName))
	if err == nil && len(name) == 0 {
		err = errors.New("connected, and nothing was sent")
	}
	return "answered by " + string(name), err
}

// reason is the part of an error that says why there was no answer.
func reason(err error) string {
	if timeout := net.Error(nil); errors.As(err, &timeout) && timeout.Timeout() {
		return "no answer"
	}
	if op := (*net.OpError)(nil); errors.As(err, &op) {
		return op.Err.Error()
	}
	return err.Error()
}
