package cluster

import "testing"

// TODO
func (s *site) addTimes(t *testing.T) any                  { return nil }
func (s *site) tellAddTimes(t *testing.T, before any)      {}
func (s *site) expectBackend(t *testing.T, backend string) {}
