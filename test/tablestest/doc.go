// Package tablestest holds the shared parts of the table drivers' tests: network
// namespaces, a sender, a router and a receiver for packets, golden files, and
// short ways to write rules. Only tests import it.
package tablestest
