package kernel

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/felixlike/felixlike/internal/nfnetlink"
	"github.com/felixlike/felixlike/tables/nftables/expression"
)

// Attributes of flowtables, which golang.org/x/sys does not name.
const (
	flowtableTable = 1
	flowtableName  = 2
)

// ReadOthers lists the objects of kinds that the driver never makes. A kernel that does not know such kinds
// has none.
func (c *Conn) ReadOthers(table string) ([]Other, error) {
	var out []Other
	var found []Other
	start := func() { found = found[:0] }
	err := c.dump(unix.NFT_MSG_GETOBJ, inTable(unix.NFTA_OBJ_TABLE, table), start, func(b []byte) {
		var o Other
		for kind, v := range nfnetlink.Attributes(b) {
			switch kind {
			case unix.NFTA_OBJ_NAME:
				o.Name = nfnetlink.Text(v)
			case unix.NFTA_OBJ_TYPE:
				o.kind = nfnetlink.Uint32(v)
			}
		}
		found = append(found, o)
	})
	if err != nil && !errors.Is(err, unix.EOPNOTSUPP) {
		return nil, fmt.Errorf("read objects of %s %s: %w", FamilyName(c.family), table, err)
	}
	out = append(out, found...)
	err = c.dump(unix.NFT_MSG_GETFLOWTABLE, inTable(flowtableTable, table), start, func(b []byte) {
		for kind, v := range nfnetlink.Attributes(b) {
			if kind == flowtableName {
				found = append(found, Other{flowtable: true, Name: nfnetlink.Text(v)})
			}
		}
	})
	if err != nil && !errors.Is(err, unix.EOPNOTSUPP) {
		return nil, fmt.Errorf("read flowtables of %s %s: %w", FamilyName(c.family), table, err)
	}
	return append(out, found...), nil
}

// encode writes the deletion; the table is written already.
func (o Other) encode(m *expression.Message) {
	if o.flowtable {
		m.Text(flowtableName, o.Name)
		return
	}
	m.Text(unix.NFTA_OBJ_NAME, o.Name)
	m.Uint32(unix.NFTA_OBJ_TYPE, o.kind)
}

// message is the kind of the message that deletes it.
func (o Other) message() uint16 {
	if o.flowtable {
		return unix.NFT_MSG_DELFLOWTABLE
	}
	return unix.NFT_MSG_DELOBJ
}
