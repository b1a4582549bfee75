package traffic

import (
	"errors"
	"fmt"
	"io"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"
)

// knockTime is the shortest wait of a denied attempt: it is one SYN.
const knockTime = 20 * time.Millisecond

// A new connection that is not open after halfOpenCheck, two lost SYNs, may wait for a half-open one. A SYN is sent again for the fifth time after 31 s.
const (
	halfOpenCheck    = 2 * time.Second
	lateAfter        = 900 * time.Millisecond
	halfOpenPatience = 40 * time.Second
)

// stream sends numbered blocks over one connection and compares their echoes.
func (tr *Traffic) stream(r Route) error {
	conn, err := Connect(r.From, netip.Addr{}, r.To, tr.patience)
	if err != nil {
		return fmt.Errorf("open: %w", err)
	}
	defer conn.Close()
	out, in := make([]byte, 2000), make([]byte, 2000)
	for n := 0; tr.ctx.Err() == nil; n++ {
		for i := range out {
			out[i] = byte(n + i)
		}
		start := time.Now()
		if err := conn.SetDeadline(start.Add(tr.patience)); err != nil {
			return err
		}
		if _, err := conn.Write(out); err != nil {
			return fmt.Errorf("after %d blocks: %w", n, err)
		}
		if _, err := io.ReadFull(conn, in); err != nil {
			return fmt.Errorf("after %d blocks: %w", n, err)
		}
		if string(in) != string(out) {
			return fmt.Errorf("block %d came back changed", n)
		}
		tr.count(func(s *Summary) {
			s.Blocks++
			s.Stall = max(s.Stall, time.Since(start))
			tr.echoed[r.Name] = time.Now()
		})
		pause(tr.ctx, tr.pause)
	}
	return nil
}

// open opens a connection, has a byte echoed, and closes it.
func (tr *Traffic) open(r Route) error {
	start := time.Now()
	conn, err := connect(r.From, netip.AddrPort{}, r.To, min(tr.patience, halfOpenCheck), func(port int) time.Duration {
		if !tr.halfOpen(r, port) {
			return max(tr.patience-halfOpenCheck, 0)
		}
		return halfOpenPatience
	})
	if err != nil {
		return fmt.Errorf("not open after %s: %w", time.Since(start).Round(time.Millisecond), err)
	}
	defer conn.Close()
	if err := Echo(conn, tr.patience); err != nil {
		return err
	}
	tr.count(func(s *Summary) {
		took := time.Since(start)
		s.Opened, s.Slowest = s.Opened+1, max(s.Slowest, took)
		if took > lateAfter {
			s.Late++
		}
		if took > tr.patience {
			s.HalfOpen++
		}
	})
	pause(tr.ctx, tr.pause) // a rate, not a wait: connections fill conntrack
	return nil
}

// knock tries to open a connection that is denied.
func (tr *Traffic) knock(r Route) error {
	conn, err := Connect(r.From, netip.Addr{}, r.To, max(knockTime, 4*tr.pause))
	switch {
	case err == nil:
		return errors.Join(errors.New("got in"), conn.Close())
	case errors.Is(err, unix.ETIMEDOUT), errors.Is(err, unix.EHOSTUNREACH), errors.Is(err, unix.ENETUNREACH):
		tr.count(func(s *Summary) { s.Denied++ })
		pause(tr.ctx, tr.pause) // an unreachable target fails at once
		return nil
	}
	return err
}
