package nftables

import "github.com/felixlike/felixlike/internal/nfnetlink"

// message writes messages to nftables; each method elsewhere writes one of the
// kernel's objects.
type message struct{ nfnetlink.Buffer }
