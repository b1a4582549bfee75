// Package denied tells of packets that policy has denied: it reads what the
// dataplane reports of them, and says whose they are and who has denied them.
//
// It decides nothing, and has the dataplane report nothing: that the driver does,
// for as long as somebody follows. Packets are parsed from untrusted bytes. It is
// tested by packets and models that are written down, and by a namespace whose
// kernel reports; with a whole node in test/e2e.
package denied
