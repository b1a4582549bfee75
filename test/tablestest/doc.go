// Package tablestest holds what the tests of the table drivers share: network
// namespaces, a sender, a router and a receiver for packets, golden files, and
// short ways to write rules. Only tests import it.
package tablestest
