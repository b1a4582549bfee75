// Package bench is the benchmark of the policy backends: it runs workloads,
// measures them and reports. In a run every backend has its turn in every
// round (A, B, C, A, B, C), each time in new network namespaces and in
// processes of its own (package worker), with a calibration loop between the
// turns, since the machines it runs on vary.
//
//	Run -> [ calibrate | first load | same state by the kernel's tools | restart, changes, idle ] x backends x rounds -> Report
//	    -> [ a lab: policy denied, allowed | traffic x numbers of policies and peers ]         x backends x rounds ->
//
// What packets find is measured in one lab, whose backend is changed between the
// turns, and beside a plain veth pair (floor). WatchLive looks at a node
// that has an agent already, and changes nothing unless it is asked to.
//
// A Report is data; text, Markdown and JSON are renderings of it. Packages page and
// plot make a page with figures of it, package compare compares two. Nothing here
// is imported by the agent. It is tested by small runs from end to end and by
// the text of a fixed report.
package bench
