package cli

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/felixlike/felixlike/cmd/felixctl/agentflag"
	"github.com/felixlike/felixlike/cmd/felixctl/labs"
	"github.com/felixlike/felixlike/cmd/felixctl/trace"
	"github.com/felixlike/felixlike/cmd/felixctl/trace/cluster"
	"github.com/felixlike/felixlike/felixlike/config"
	"github.com/felixlike/felixlike/felixlike/control"
	"github.com/felixlike/felixlike/internal/terminal"
)

// options are the flags.
type options struct {
	from, to, port, family, state string
	services                      string
	live, all                     bool
	agentflag.Target
	backends []string
	timeout  time.Duration
	output   terminal.Output
}

// nodes are those that can be asked: the lab's, or this one.
func (o *options) nodes(ctx context.Context) ([]*cluster.Node, error) {
	if o.Lab == "" || o.Node != "" {
		return []*cluster.Node{{Agent: control.NewClient(o.Socket())}}, nil
	}
	s, err := labs.NewClient(cmp.Or(o.Root, labs.DefaultRoot), o.Lab).Status(ctx)
	if err != nil {
		return nil, err
	}
	var all []*cluster.Node
	for _, n := range s.Nodes {
		if n.Agent == nil {
			return nil, fmt.Errorf("%s: %s", n.Name, n.Error)
		}
		all = append(all, &cluster.Node{Agent: control.NewClient(n.ControlSocket)})
	}
	return all, nil
}

// query is the question, as far as it can be understood without the cluster.
type query struct {
	options  *options
	port     port
	conn     trace.Conn
	services services
}

func (o *options) parse() (*query, error) {
	q := &query{options: o}
	var err error
	if q.port, err = parsePort(o.port); err != nil {
		return nil, err
	}
	if q.conn, err = trace.ParseConn(o.state); err != nil {
		return nil, fmt.Errorf("--state: %w", err)
	}
	switch {
	case o.family != "" && o.family != "4" && o.family != "6":
		return nil, fmt.Errorf("--family %q: must be 4 or 6", o.family)
	case o.timeout <= 0:
		return nil, fmt.Errorf("--timeout %s: must be more than nothing", o.timeout)
	case slices.ContainsFunc(o.backends, func(b string) bool { return !slices.Contains(config.BackendNames(), b) }):
		return nil, fmt.Errorf("--backend %s: must be of %s", strings.Join(o.backends, ","), strings.Join(config.BackendNames(), ", "))
	case o.live && q.conn != trace.New:
		return nil, fmt.Errorf("--live sends the first packet of a connection, not one of state %q", strings.TrimSpace(o.state))
	}
	return q, nil
}
