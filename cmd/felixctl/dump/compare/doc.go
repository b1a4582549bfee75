// Package compare tells how two states differ: chain by chain, set by set and flow
// by flow (Structure), as a unified diff of canonical text (Text), or by what
// becomes of packets (Verdicts).
//
// What differs for no reason that matters is taken out first (Canonical): order of
// sets and flows, counters, line numbers, what other programs have written, and
// flows that the switch learns from traffic.
//
// It is pure, but for whoever judges packets for it. It is tested by states made
// to differ, and by what is wanted against what is programmed.
package compare
