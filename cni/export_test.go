package cni

import "time"

// SetWait shortens Add's wait for policy.
func (s *Server) SetWait(d time.Duration) { s.wait = d }

// SetHashBits shortens the hashes in names to this many bits, so that they collide.
func (s *Server) SetHashBits(bits uint) { s.names.bits = bits }
