package measure

import (
	"context"
	"net"
	"net/netip"
	"time"

	"github.com/felixlike/felixlike/internal/namespace"
)

// AnswerTimeout bounds the wait for an immediate answer.
const AnswerTimeout = 10 * time.Second

// Dial opens a TCP connection from a network namespace and returns the time that it
// took.
func Dial(ctx context.Context, from *namespace.Namespace, to netip.AddrPort) (conn *net.TCPConn, took time.Duration, err error) {
	d := net.Dialer{Timeout: AnswerTimeout}
	err = from.Do(func() error {
		begin := time.Now()
		c, err := d.DialContext(ctx, "tcp", to.String())
		took = time.Since(begin)
		if err == nil {
			conn = c.(*net.TCPConn)
		}
		return err
	})
	return conn, took, err
}
