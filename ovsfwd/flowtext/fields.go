package flowtext

import (
	"errors"
	"strconv"
	"sync"

	"github.com/felixlike/felixlike/ovsfwd/openflow"
)

// fields are the fields by their names in ovs-ofctl; fieldOf decides on names that several
// have. The map is read-only.
var fields = sync.OnceValue(func() map[string]openflow.Field {
	fields := map[string]openflow.Field{}
	for _, f := range openflow.Fields() {
		for _, n := range f.Names() {
			fields[n] = f
		}
	}
	delete(fields, "tp_src")
	delete(fields, "tp_dst")
	return fields
})

// errForeign marks a flow with a part that felixlike does not write.
var errForeign = errors.New("not of a form that felixlike writes")

func number8(s string) (uint8, error) {
	n, err := strconv.ParseUint(s, 0, 8)
	return uint8(n), err
}

func number16(s string) (uint16, error) {
	n, err := strconv.ParseUint(s, 0, 16)
	return uint16(n), err
}

func number32(s string) (uint32, error) {
	n, err := strconv.ParseUint(s, 0, 32)
	return uint32(n), err
}
