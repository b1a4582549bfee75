package expression

import "github.com/felixlike/felixlike/internal/nfnetlink"

// Message is a buffer of netlink messages to nf_tables.
type Message struct{ nfnetlink.Buffer }
