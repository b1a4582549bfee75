package expression

import (
	"encoding/binary"
	"fmt"

	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"github.com/felixlike/felixlike/internal/nfnetlink"
	"github.com/felixlike/felixlike/tables"
)

// Message is a buffer of netlink messages to nf_tables.
type Message struct{ nfnetlink.Buffer }

// Registers. Register 1 is 16 bytes wide and overlays the 4-byte registers
// from 8 on; a concatenation lies in consecutive 4-byte registers.
const (
	regVerdict = unix.NFT_REG_VERDICT
	reg1       = unix.NFT_REG_1
	reg2       = unix.NFT_REG_2
	reg32      = unix.NFT_REG32_00
)

func equality(negated bool) uint32 {
	if negated {
		return unix.NFT_CMP_NEQ
	}
	return unix.NFT_CMP_EQ
}

// verdictCode returns the kernel's number of an action that is a verdict.
func verdictCode(a tables.Action) (expr.VerdictKind, error) {
	switch a.(type) {
	case tables.Accept:
		return expr.VerdictAccept, nil
	case tables.Drop:
		return expr.VerdictDrop, nil
	case tables.Return:
		return expr.VerdictReturn, nil
	case tables.Jump:
		return expr.VerdictJump, nil
	case tables.Goto:
		return expr.VerdictGoto, nil
	}
	return 0, fmt.Errorf("unknown action %T", a)
}

// native encodes a number as the kernel keeps marks and states: in host order.
func native(v uint32) (b [4]byte) {
	binary.NativeEndian.PutUint32(b[:], v)
	return b
}
