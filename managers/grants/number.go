package grants

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"

	"github.com/felixlike/felixlike/tables"
)

// numbers gives each identity or list its number. No number is zero.
type numbers struct {
	taken map[tables.Number]bool
	// bits shortens the numbers; tests make them collide.
	bits int
}

func newNumbers() numbers { return numbers{taken: map[tables.Number]bool{}, bits: 32} }

// take returns the number of a thing with this content.
func (n *numbers) take(content string) tables.Number {
	for salt := 0; ; salt++ {
		sum := sha256.Sum256(fmt.Appendf(nil, "%d\x00%s", salt, content))
		number := tables.Number(binary.BigEndian.Uint32(sum[:]) >> (32 - n.bits))
		if number != 0 && !n.taken[number] {
			n.taken[number] = true
			return number
		}
	}
}

func (n *numbers) release(number tables.Number) { delete(n.taken, number) }
