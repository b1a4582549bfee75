package cli

import (
	"cmp"
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
	live, all, short              bool
	// where, writes and with are the hidden flags of package together.
	where, writes, with bool
	others              others
	agentflag.Target
	backends []string
	timeout  time.Duration
	output   terminal.Output
}

// nodes returns the nodes that can be asked: all of the lab, or this one with others. silent says why others cannot.
func (o *options) nodes() (all []*cluster.Node, silent map[string]string, err error) {
	if o.Lab == "" || o.Node != "" {
		all = []*cluster.Node{{Agent: control.NewClient(o.Socket())}}
		for _, s := range o.others.states {
			all = append(all, cluster.From(s))
		}
		return all, o.others.Silent, nil
	}
	root := cmp.Or(o.Root, labs.Root())
	names, err := labs.Nodes(root, o.Lab)
	for _, name := range names {
		one := &cluster.Node{Agent: control.NewClient(labs.ControlSocket(root, o.Lab, name))}
		one.Name = name
		all = append(all, one)
	}
	return all, nil, err
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
