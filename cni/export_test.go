package cni

import "time"

// SetWait has Add wait for a shorter time than a node's pods are given.
func (s *Server) SetWait(d time.Duration) { s.wait = d }

// SetHashBits has names collide: their hashes have so few bits.
func (s *Server) SetHashBits(bits uint) { s.names.bits = bits }
