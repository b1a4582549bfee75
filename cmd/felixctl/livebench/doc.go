// Package livebench watches the agent of a live node and reports its resource use and its
// work: `felixctl bench live`. By itself it only reads, from the agent and the kernel. It
// changes the backend only on request.
//
// `felixctl bench report` and `compare` read its report, too. It is tested
// on a node of a lab (test/bench), and by tables.
package livebench
