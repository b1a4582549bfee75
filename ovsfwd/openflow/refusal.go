package openflow

import (
	"encoding/binary"
	"fmt"
	"strings"

	"antrea.io/libOpenflow/openflow15"
)

// shownRefusals bounds an error text; a whole refused table says no more than
// its beginning.
const shownRefusals = 5

// Refusal is one change that the switch, or its encoding, refused.
type Refusal struct {
	Mod    FlowMod
	Reason string
}

// BundleError says which changes were refused. Nothing of the bundle is
// installed.
type BundleError struct{ Refusals []Refusal }

// Error names the refused flows in ovs-ofctl notation.
func (e *BundleError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "openflow bundle refused, nothing installed:")
	for i, r := range e.Refusals {
		if i == shownRefusals {
			fmt.Fprintf(&b, "; and %d more", len(e.Refusals)-i)
			break
		}
		if i > 0 {
			b.WriteByte(';')
		}
		if r.Mod.Key != "" {
			fmt.Fprintf(&b, " %s:", r.Mod.Key)
		}
		fmt.Fprintf(&b, " %s: %s", r.Mod, r.Reason)
	}
	return b.String()
}

// badOutGroup is the reason if the switch does not have the group of an action.
const badOutGroup = "bad action: out group"

// reason names the error of an error message. The names are those of the
// OpenFlow specification.
func reason(m message) string {
	if m.kind() != openflow15.Type_Error || len(m.body()) < 4 {
		return "malformed error message"
	}
	kind, code := binary.BigEndian.Uint16(m.body()), binary.BigEndian.Uint16(m.body()[2:])
	name, codes := errorNames(kind)
	if int(code) < len(codes) {
		return name + ": " + codes[code]
	}
	return fmt.Sprintf("%s: code %d", name, code)
}

func errorNames(kind uint16) (string, []string) {
	switch kind {
	case openflow15.ET_HELLO_FAILED:
		return "hello failed", []string{"incompatible version", "permissions"}
	case openflow15.ET_BAD_REQUEST:
		return "bad request", nil
	case openflow15.ET_BAD_ACTION:
		return "bad action", []string{
			"type", "length", "experimenter", "experimenter type", "out port", "argument", "permissions", "too many", "queue",
			"out group", "match inconsistent", "unsupported order", "tag", "set type", "set length", "set argument", "set mask",
		}
	case openflow15.ET_BAD_INSTRUCTION:
		return "bad instruction", []string{
			"unknown", "unsupported", "table", "metadata", "metadata mask", "experimenter", "experimenter type", "length", "permissions", "duplicate",
		}
	case openflow15.PET_BAD_MATCH:
		return "bad match", []string{
			"type", "length", "tag", "link address mask", "network address mask", "wildcards", "field", "value", "mask", "prerequisite", "duplicate field", "permissions",
		}
	case openflow15.ET_FLOW_MOD_FAILED:
		return "flow mod failed", []string{
			"unknown", "table full", "table", "overlap", "permissions", "timeout", "command", "flags", "cannot sync", "priority", "is sync",
		}
	case openflow15.ET_BUNDLE_FAILED:
		return "bundle failed", nil
	case openflow15.ET_EXPERIMENTER:
		return "experimenter error", nil
	}
	return fmt.Sprintf("error type %d", kind), nil
}
