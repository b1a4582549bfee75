// Package policytest is felixctl test: it reads policies, and tests of kind PolicyTest that describe clusters and
// say which packets the policies allow, and reports each expectation that does not hold and each rule
// that decides in no test.
//
// cmd/felixctl/preview judges the packets. The package reads files, and asks the agent for objects only to write a first
// test. It enforces nothing and needs neither root nor a cluster. It is tested by its output, and by the examples
// in deploy/examples/tests.
package policytest
