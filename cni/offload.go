package cni

import "github.com/felixlike/felixlike/internal/ethtool"

// DisableTxChecksum turns off transmit checksum offload of an interface in the
// network namespace of the calling thread. The userspace datapath reads frames
// from packet sockets and passes them on as they are: with offload on, their
// checksums are never filled in and the receiver drops them.
func DisableTxChecksum(name string) error { return ethtool.Set(name, ethtool.TxChecksum, false) }
