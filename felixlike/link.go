package felixlike

import (
	"context"
	"errors"
	"io/fs"
	"syscall"

	"github.com/felixlike/felixlike/ovsfwd/openflow"
)

// link is a flow table's OpenFlow connection to the bridge.
type link struct {
	socket string
	flows  *openflow.FlowTable
	// lost, if not nil, is told once when a connection ends.
	lost func(error)
	conn *openflow.Conn
}

// connect dials the switch if there is no connection, and makes the flow table
// read what is installed.
func (l *link) connect(ctx context.Context) error {
	if l.conn != nil && l.conn.Err() == nil {
		return nil
	}
	l.close()
	conn, err := openflow.Dial(ctx, l.socket)
	if err != nil {
		return err
	}
	l.conn = conn
	l.flows.Connect(conn)
	if l.lost != nil {
		go func() {
			<-conn.Done()
			l.lost(errors.Join(errors.New("OpenFlow connection ended"), conn.Err()))
		}()
	}
	return nil
}

// apply connects, and brings the switch to what the flow table wants.
func (l *link) apply(ctx context.Context) (Applied, error) {
	if err := l.connect(ctx); err != nil {
		return Applied{}, err
	}
	return l.send(ctx)
}

// send brings the switch to what the flow table wants, over the connection that
// there is.
func (l *link) send(ctx context.Context) (Applied, error) {
	r, err := l.flows.Apply(ctx)
	return Applied{Writes: r.Messages, Full: r.FullRead, Repaired: r.Repaired, Flows: l.flows.Len()}, err
}

// reread makes the next apply of flows read what is installed.
func (l *link) reread() {
	if l.conn != nil {
		l.flows.Connect(l.conn)
	}
}

func (l *link) close() {
	if l.conn != nil {
		l.conn.Close()
		l.conn = nil
	}
}

// noSwitch reports whether an error says that no switch serves a socket: then
// it holds nothing.
func noSwitch(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ECONNREFUSED)
}
