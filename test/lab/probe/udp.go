package probe

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/felixlike/felixlike/model"
)

// udpExchange is one datagram, sent again by every try, and its echo.
type udpExchange struct {
	file    *os.File
	payload []byte
}

func newUDPExchange(f Flow, answers chan<- answer) (*udpExchange, error) {
	fd, err := f.From.socket(model.UDP, f.Source)
	if err != nil {
		return nil, err
	}
	if err := unix.Connect(fd, sockaddr(f.Target)); err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("connect to %s: %w", f.Target, err)
	}
	e := &udpExchange{
		file:    os.NewFile(uintptr(fd), "udp"),
		payload: binary.BigEndian.AppendUint64(nil, rand.Uint64()),
	}
	go e.receive(answers, time.Now())
	return e, nil
}

// receive waits for the echo of the payload. The socket is connected: it gets
// datagrams from the target alone, and its ICMP errors.
func (e *udpExchange) receive(answers chan<- answer, sent time.Time) {
	buffer := make([]byte, 64)
	for {
		n, err := e.file.Read(buffer)
		switch {
		case errors.Is(err, unix.ECONNREFUSED):
			report(answers, answer{reason: Refused})
			return
		case errors.Is(err, os.ErrClosed):
			return
		case unreachable(err):
			continue
		case err != nil:
			report(answers, answer{reason: err.Error()})
			return
		case string(buffer[:n]) == string(e.payload):
			report(answers, answer{through: true, reason: Answered, rtt: time.Since(sent)})
			return
		}
	}
}

// try sends the datagram; an ICMP error of an earlier one may come up here.
func (e *udpExchange) try() error {
	_, err := e.file.Write(e.payload)
	if errors.Is(err, unix.ECONNREFUSED) || unreachable(err) {
		return nil
	}
	return err
}

func (e *udpExchange) close() { e.file.Close() }

// unreachable reports whether an error comes from an ICMP unreachable
// message. It is no verdict, since a later attempt may get through.
func unreachable(err error) bool {
	return errors.Is(err, unix.EHOSTUNREACH) || errors.Is(err, unix.ENETUNREACH) || errors.Is(err, unix.EACCES) || errors.Is(err, unix.EPROTO)
}
