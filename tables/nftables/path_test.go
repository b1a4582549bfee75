package nftables

import (
	"net/netip"
	"testing"

	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/test/tablestest"
)

// path is a path for packets, with its namespaces as those of this package.
type path struct {
	*tablestest.Path
	sender, router, receiver namespace
}

func newPath(t *testing.T) *path {
	t.Helper()
	p := tablestest.NewPath(t, "nft")
	as := func(n tablestest.Namespace) namespace { return namespace{n.Name, n.FD} }
	return &path{p, as(p.Sender), as(p.Router), as(p.Receiver)}
}

const (
	sentinel  = tablestest.Sentinel
	probeSize = tablestest.ProbeSize
)

// passes reports whether a packet arrives.
func (p *path) passes(t *testing.T, protocol model.Protocol, src, dst netip.Addr, port uint16) bool {
	t.Helper()
	return p.Passes(t, protocol, src, dst, port)
}
