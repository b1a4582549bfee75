package health

import (
	"net"
	"net/netip"
	"sync"
)

const (
	// maxConnections bounds the connections from outside this node, maxPerSource those
	// from one address: no pod can block other callers.
	maxConnections = 512
	maxPerSource   = 32
	// maxLocal bounds the connections from this node itself, such as kubelet's probes.
	// They count separately.
	maxLocal = 128
)

// limited closes excess connections at once. If it let them wait, later callers would
// wait behind them.
type limited struct {
	net.Listener

	mu sync.Mutex
	// open counts the connections by address, outside all from outside this node.
	open    map[netip.Addr]int
	outside int
}

// Limit returns a listener that closes excess connections, in all and by source, at once.
func Limit(l net.Listener) net.Listener {
	return &limited{Listener: l, open: map[netip.Addr]int{}}
}

// Accept waits for the next connection within the bounds.
func (l *limited) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		from, local := source(conn)
		if l.take(from, local) {
			return &counted{Conn: conn, done: sync.OnceFunc(func() { l.release(from, local) })}, nil
		}
		_ = conn.Close() // the caller is not served
	}
}

// source returns the address of a caller, and whether it is this node itself: its own
// addresses are sources of no packet from elsewhere.
func source(conn net.Conn) (from netip.Addr, local bool) {
	remote, ok := conn.RemoteAddr().(*net.TCPAddr)
	if !ok {
		return netip.Addr{}, false
	}
	from = remote.AddrPort().Addr().Unmap()
	at, ok := conn.LocalAddr().(*net.TCPAddr)
	return from, ok && at.AddrPort().Addr().Unmap() == from
}

func (l *limited) take(from netip.Addr, local bool) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case local && l.open[from] >= maxLocal:
		return false
	case !local && (l.open[from] >= maxPerSource || l.outside >= maxConnections):
		return false
	}
	l.open[from]++
	if !local {
		l.outside++
	}
	return true
}

func (l *limited) release(from netip.Addr, local bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.open[from]--; l.open[from] == 0 {
		delete(l.open, from)
	}
	if !local {
		l.outside--
	}
}

// counted is a connection that counts until it is closed.
type counted struct {
	net.Conn
	done func()
}

// Close closes the connection.
func (c *counted) Close() error {
	c.done()
	return c.Conn.Close()
}
