package kernel

import (
	"github.com/google/nftables/userdata"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/felixlike/felixlike/internal/nfnetlink"
	"github.com/felixlike/felixlike/tables"
)

// decodeVerdict returns the action of a verdict, nil for a foreign one.
func decodeVerdict(b []byte) tables.Action {
	var code int32
	var chain string
	for kind, v := range nfnetlink.Attributes(b) {
		switch kind {
		case unix.NFTA_VERDICT_CODE:
			code = int32(nfnetlink.Uint32(v))
		case unix.NFTA_VERDICT_CHAIN:
			chain = nfnetlink.Text(v)
		}
	}
	return verdictAction(code, chain)
}

// CommentIn returns the comment in a rule's userdata, or nil. The library's
// reader panics on data that others have written badly, so this one looks for
// itself.
func CommentIn(data []byte) []byte {
	for len(data) >= 2 && len(data) >= 2+int(data[1]) {
		kind, v := userdata.Type(data[0]), data[2:2+int(data[1])]
		if kind == userdata.TypeComment {
			return nfnetlink.Trimmed(v)
		}
		data = data[2+len(v):]
	}
	return nil
}

func inTable(kind uint16, table string) []netlink.Attribute {
	return []netlink.Attribute{{Type: kind, Data: nfnetlink.CString(table)}}
}

func named(tableKind uint16, table string, nameKind uint16, name string) []netlink.Attribute {
	return append(inTable(tableKind, table), netlink.Attribute{Type: nameKind, Data: nfnetlink.CString(name)})
}
