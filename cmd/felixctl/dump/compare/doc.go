// Package compare compares two states: chain by chain, set by set and flow
// by flow (Structure), as a unified diff of canonical text (Text), or by the verdicts
// on packets (Verdicts).
//
// Canonical first removes the differences that do not matter: order of sets and flows,
// counters, line numbers, objects of other programs, and flows that the switch learns
// from traffic.
//
// It is pure, except for the caller's Judge. Tests compare changed states, and the
// desired state with the programmed one.
package compare
