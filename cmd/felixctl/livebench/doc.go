// Package livebench watches the agent of a live node, and reports what it used and did:
// `felixctl bench live`. By itself it only reads. It knows of nodes and pods what the
// agent and the kernel tell; it changes the backend only where that is asked for.
//
// Its report is what `felixctl bench report` and `compare` read as well. It is tested
// on a node of a lab (test/bench), and by tables.
package livebench
