// Package truthtable reads NetworkPolicy truth tables: files with one JSON
// object a line, each holding a whole cluster and the probes that must get
// through or must not. It turns a line into Kubernetes objects of both
// address families.
//
// It owns the file format and nothing else: it evaluates no policy and sends
// no packet, so that the oracle, the backends and the end-to-end tests can be
// judged by the same data. It is tested by reading testdata/sample.jsonl.
package truthtable
