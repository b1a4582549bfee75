// Package nfnetlink speaks to the subsystems of netfilter over netlink: it
// writes messages into a buffer without allocating for their parts, sends many
// at once, and hands the kernel's answers on as they come.
//
// It knows no subsystem. Its parser of answers is tested by fuzzing, the rest on the
// real kernel by the drivers that use it.
package nfnetlink
