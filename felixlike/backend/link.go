package backend

import (
	"context"
	"errors"
	"io/fs"
	"syscall"

	"github.com/felixlike/felixlike/ovsfwd/openflow"
)

// Link is a flow table's OpenFlow connection to the bridge.
type Link struct {
	Socket string
	Flows  *openflow.FlowTable
	// Lost, if not nil, is called once when a connection ends.
	Lost func(error)
	Conn *openflow.Conn
}

// Connect dials the switch if there is no connection, and then makes the flow table read the
// installed flows.
func (l *Link) Connect(ctx context.Context) error {
	if l.Conn != nil && l.Conn.Err() == nil {
		return nil
	}
	l.Close()
	conn, err := openflow.Dial(ctx, l.Socket)
	if err != nil {
		return err
	}
	l.Conn = conn
	l.Flows.Connect(conn)
	if l.Lost != nil {
		go func() {
			<-conn.Done()
			l.Lost(errors.Join(errors.New("OpenFlow connection ended"), conn.Err()))
		}()
	}
	return nil
}

// Apply connects, and brings the switch to the flow table's desired state.
func (l *Link) Apply(ctx context.Context) (Applied, error) {
	if err := l.Connect(ctx); err != nil {
		return Applied{}, err
	}
	return l.Send(ctx)
}

// Send brings the switch to the flow table's desired state, over the existing connection.
func (l *Link) Send(ctx context.Context) (Applied, error) {
	r, err := l.Flows.Apply(ctx)
	return Applied{Writes: r.Messages + r.Groups, Full: r.FullRead, Repaired: r.Repaired, Flows: l.Flows.Len()}, err
}

// Reread makes the next apply read the installed flows.
func (l *Link) Reread() {
	if l.Conn != nil {
		l.Flows.Connect(l.Conn)
	}
}

func (l *Link) Close() {
	if l.Conn != nil {
		l.Conn.Close()
		l.Conn = nil
	}
}

// NoSwitch reports whether an error means that no switch serves a socket: then there are no
// flows.
func NoSwitch(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ECONNREFUSED)
}
