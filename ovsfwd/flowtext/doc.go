// Package flowtext has the one readable form of an OpenFlow flow: what `ovs-ofctl dump-flows`
// lists and `ovs-ofctl add-flows` takes. It parses that text into typed matches and actions,
// and writes them again.
//
// It owns the type, its parser and its notation. Package openflow has the flows that are sent
// to a switch and reads them back from the wire; it owns the fields and their names. flowtext
// starts no program and knows no policy.
//
// A flow with a field or an action that felixlike does not write keeps its text
// (Flow.Foreign): a packet walk has to stop there. Notations that mean the same become equal:
// load and set_field, any order of fields, "tcp" and the fields that it stands for.
//
// Tests parse the dump of a real bridge, write it and compare (TestWrittenAsListed), and fuzz
// the parser (FuzzParse).
package flowtext
