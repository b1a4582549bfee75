// Package bench is the benchmark of the policy backends: it runs workloads,
// measures them and reports. In a run every backend has its turn in every
// round (A, B, C, A, B, C), each time in new network namespaces and in
// new processes (package worker). A calibration loop runs between the
// turns, since machines vary.
//
//	Run -> [ calibrate | first load | same state by the kernel's tools | restart, changes, idle ] x backends x rounds -> Report
//	    -> [ a lab: policy denied, allowed | traffic x numbers of policies and peers ]         x backends x rounds ->
//
// Packets are measured in one lab: its backend changes between the turns. A plain veth
// pair (floor) is measured for comparison.
//
// A Report is data; text, Markdown and JSON are renderings of it. Packages page and
// plot make a page with figures of it, package compare compares two. The agent imports
// nothing of it. It is tested by small runs from end to end and by
// the text of a fixed report.
package bench
