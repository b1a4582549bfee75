// Package watch receives the notifications of nf_tables, and records which objects of one
// table other programs have changed.
//
// The kernel notifies every commit in a network namespace to the group NFNLGRP_NFTABLES.
// A socket filter drops the driver's own commits, by their netlink port.
package watch
