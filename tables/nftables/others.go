package nftables

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/felixlike/felixlike/internal/nfnetlink"
	"github.com/felixlike/felixlike/tables"
	"github.com/felixlike/felixlike/tables/nftables/expression"
)

// other is something in our table of a kind that is never ours: a stateful
// object, or a flowtable.
type other struct {
	flowtable bool
	name      string
	// kind is the type of an object, zero for flowtables.
	kind uint32
}

// Attributes of flowtables, which golang.org/x/sys does not name.
const (
	flowtableTable = 1
	flowtableName  = 2
)

func (o other) noun() string {
	if o.flowtable {
		return "flowtable"
	}
	return "object"
}

// readOthers lists what is in the table that is never ours. A kernel that
// knows no such things has none.
func (c *conn) readOthers(table string) ([]other, error) {
	var out []other
	var found []other
	start := func() { found = found[:0] }
	err := c.retry(unix.NFT_MSG_GETOBJ, inTable(unix.NFTA_OBJ_TABLE, table), start, func(b []byte) {
		var o other
		for kind, v := range nfnetlink.Attributes(b) {
			switch kind {
			case unix.NFTA_OBJ_NAME:
				o.name = nfnetlink.Text(v)
			case unix.NFTA_OBJ_TYPE:
				o.kind = nfnetlink.Uint32(v)
			}
		}
		found = append(found, o)
	})
	if err != nil && !errors.Is(err, unix.EOPNOTSUPP) {
		return nil, fmt.Errorf("read objects of inet %s: %w", table, err)
	}
	out = append(out, found...)
	err = c.retry(unix.NFT_MSG_GETFLOWTABLE, inTable(flowtableTable, table), start, func(b []byte) {
		for kind, v := range nfnetlink.Attributes(b) {
			if kind == flowtableName {
				found = append(found, other{flowtable: true, name: nfnetlink.Text(v)})
			}
		}
	})
	if err != nil && !errors.Is(err, unix.EOPNOTSUPP) {
		return nil, fmt.Errorf("read flowtables of inet %s: %w", table, err)
	}
	return append(out, found...), nil
}

// removeOthers deletes what is never ours, in a transaction of its own: none of
// it decides anything by itself, and nothing that is wanted shall fail because
// the kernel does not let go of it. What is refused is tried again at the next
// full read.
func (t *Table) removeOthers(result *tables.Result) error {
	for _, o := range t.others {
		err := t.send([]op{{kind: deleteOther, other: o}}, result)
		var refused *refusedError
		switch {
		case errors.As(err, &refused):
		case err != nil:
			return err
		default:
			t.damaged(objectKey{o.noun(), o.name}, o.noun(), "foreign "+o.noun(), t.pending.OtherChange())
		}
	}
	t.others = nil
	return nil
}

// encode writes the deletion; the table is written already.
func (o other) encode(m *expression.Message) {
	if o.flowtable {
		m.Text(flowtableName, o.name)
		return
	}
	m.Text(unix.NFTA_OBJ_NAME, o.name)
	m.Uint32(unix.NFTA_OBJ_TYPE, o.kind)
}

// message is the kind of the message that deletes it.
func (o other) message() uint16 {
	if o.flowtable {
		return unix.NFT_MSG_DELFLOWTABLE
	}
	return unix.NFT_MSG_DELOBJ
}
