package denied

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/florianl/go-nflog/v2"

	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/rules"
)

// Bounds for the kernel's messages: short delays for people, one message for reports that come together.
const (
	atMost     = 64 // packets in a message
	after      = 10 // hundredths of a second
	readBuffer = 1 << 20
)

// ListenNFLOG receives the reports of a group, rules.ReportGroup or rules.LogGroup, in a network namespace (the
// caller's if zero), until ctx ends, and then closes the returned channel. It calls got for one report after the other;
// got has to return at once.
func ListenNFLOG(ctx context.Context, netns int, group uint16, got func(Report)) (ended <-chan struct{}, err error) {
	log, err := nflog.Open(&nflog.Config{
		NetNS: netns, Group: group, Copymode: nflog.CopyPacket, Bufsize: rules.ReportLength,
		QThresh: atMost, Timeout: after, Flags: nflog.FlagSeq,
	})
	if err != nil {
		return nil, fmt.Errorf("open a socket for packets that are logged: %w", err)
	}
	// Reports that do not fit leave gaps in the numbers, which count them.
	_ = log.Con.SetReadBuffer(readBuffer)
	var last uint32
	known := false
	err = log.RegisterWithErrorFunc(ctx, func(a nflog.Attribute) int {
		r, ok := reportOf(a)
		if a.Seq != nil {
			if known {
				r.Lost = uint64(*a.Seq - last - 1)
			}
			last, known = *a.Seq, true
		}
		if ok {
			got(r)
		}
		return 0
	}, func(err error) int {
		if ctx.Err() != nil || errors.Is(err, net.ErrClosed) {
			return 1
		}
		return 0 // the kernel had more than the socket holds: the numbers show it
	})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("listen to group %d of NFLOG (has the kernel nfnetlink_log, or is another program listening?): %w", group, err), log.Close())
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		<-ctx.Done()
		_ = log.Con.SetReadDeadline(time.Now())
		_ = log.Close()
	}()
	return done, nil
}

// reportOf reads a message; it returns false for a message that is not of our rules.
func reportOf(a nflog.Attribute) (Report, bool) {
	if a.Prefix == nil || a.Payload == nil {
		return Report{}, false
	}
	r := Report{At: time.Now(), Packet: *a.Payload}
	prefix := strings.TrimRight(*a.Prefix, "\x00")
	if prefix == rules.ChainNoService {
		r.Direction, r.NoService = model.Egress, true
		return r, true
	}
	if serviceReasons[prefix] != "" {
		r.Direction, r.Service = model.Egress, prefix
		return r, true
	}
	if key, ok := rules.LogKeyOf(prefix); ok {
		r.Log = key
		return r, true
	}
	if prefix == rules.ChainHostsDeniedPreDNAT {
		r.Direction, r.Host, r.PreDNAT = model.Ingress, true, true
		return r, true
	}
	for _, d := range model.Directions() {
		if prefix == rules.DeniedChain(d) {
			r.Direction = d
			return r, true
		}
		if prefix == rules.HostsDenied(d) {
			r.Direction, r.Host = d, true
			return r, true
		}
	}
	return r, false
}
