package openflow

import (
	"cmp"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
)

// identity is a keyed digest of table, priority and match, by which the switch identifies
// a flow. It is the same for a desired flow and for that flow when it is read back.
type identity [16]byte

// secret is the key of the digests that never leave the process. Without it, nobody can
// search for two flows that share a digest. A cookie cannot have it, because it outlives
// the process.
type secret [16]byte

// ofProcess is the secret of all digests in this process, so that those of a connection
// and of a table agree.
var ofProcess = newSecret()

func newSecret() (s secret) {
	_, _ = rand.Read(s[:]) // never fails
	return s
}

func (s secret) digest(sum [sha256.Size]byte) [sha256.Size]byte {
	var b [len(s) + len(sum)]byte
	copy(b[copy(b[:], s[:]):], sum[:])
	return sha256.Sum256(b[:])
}

// matchSum is a digest of table, priority and match without the secret.
type matchSum [sha256.Size]byte

// identify digests a match in wire form.
func (s secret) identify(table uint8, priority uint16, match []byte) (identity, matchSum) {
	var fixed [64]byte
	b := append(fixed[:0], table)
	b = binary.BigEndian.AppendUint16(b, priority)
	sum := sha256.Sum256(append(b, match...))
	keyed := s.digest(sum)
	return identity(keyed[:16]), sum
}

// content returns the hash of a flow's content that is in its cookie, and the rest: 64 bits
// that depend on the secret. A search finds two contents with one cookie within a second,
// so an equal cookie does not prove that a flow is unchanged.
func (s secret) content(match matchSum, instructions []byte) (hash, rest uint64) {
	var fixed [256]byte
	b := append(fixed[:0], match[:16]...)
	sum := sha256.Sum256(append(b, instructions...))
	keyed := s.digest(sum)
	return binary.BigEndian.Uint64(sum[:]) & hashMask, binary.BigEndian.Uint64(keyed[:])
}

// digester digests flows. It has a buffer, so it is not for concurrent use.
type digester struct {
	owner   uint16
	version uint8
	buf     []byte
}

// digest returns a flow's identity and cookie. If a flow cannot be encoded, both come
// from its text, and the flow is refused when it is sent.
func (d *digester) digest(f Flow) entry {
	var id identity
	var sum matchSum
	var hash, rest uint64
	match, err := f.Match.wire(d.buf[:0])
	if err == nil {
		d.buf = match
		id, sum = ofProcess.identify(f.Table, f.Priority, match)
		var instructions []byte
		if instructions, err = appendInstructions(d.buf[:0], f.Actions); err == nil {
			d.buf = instructions
			hash, rest = ofProcess.content(sum, instructions)
		}
	}
	if err != nil {
		id, sum = ofProcess.identify(f.Table, f.Priority, []byte(f.Match.String()))
		hash, rest = ofProcess.content(sum, []byte(f.String()))
	}
	return entry{id, uint64(d.owner)<<ownerShift | uint64(d.version)<<versionShift | hash, rest}
}

// registerPairs is the OXM class of registers taken two at a time
// (OXM_OF_PKT_REG): in OpenFlow 1.5 the switch writes registers so.
const registerPairs class = 0x8001

// canonicalMatch brings the fields of a match that the switch wrote to the form
// in which this package writes them: single registers, no mask that has all
// bits or none, and the order of the fields.
func canonicalMatch(b []byte) ([]byte, error) {
	var fields [][]byte
	for len(b) > 0 {
		if len(b) < 4 || len(b) < 4+int(b[3]) {
			return nil, errors.New("match field too short")
		}
		field := b[:4+int(b[3])]
		b = b[len(field):]
		if class(binary.BigEndian.Uint16(field)) != registerPairs {
			fields = append(fields, field)
			continue
		}
		pair, err := splitPair(field)
		if err != nil {
			return nil, err
		}
		fields = append(fields, pair...)
	}
	slices.SortFunc(fields, func(a, b []byte) int {
		return cmp.Compare(headerPosition(a), headerPosition(b))
	})
	return slices.Concat(fields...), nil
}

func headerPosition(header []byte) uint32 {
	return spec{class: class(binary.BigEndian.Uint16(header)), number: header[2] >> 1}.position()
}

// splitPair makes the two register fields of a pair.
func splitPair(field []byte) ([][]byte, error) {
	value, mask := field[4:], []byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}
	if field[2]&1 != 0 && len(value) == 16 {
		value, mask = value[:8], value[8:]
	}
	if len(value) != 8 {
		return nil, fmt.Errorf("register pair of %d bytes", len(value))
	}
	var out [][]byte
	for i := range 2 {
		s := spec{class: nicira, number: field[2]>>1*2 + byte(i), width: 4}
		v, m := value[i*4:i*4+4], mask[i*4:i*4+4]
		switch number(m) {
		case 0:
		case math.MaxUint32:
			out = append(out, slices.Concat(s.header(false), v))
		default:
			out = append(out, slices.Concat(s.header(true), v, m))
		}
	}
	return out, nil
}

// entry is the digest of one flow; the flow itself is not kept.
type entry struct {
	id     identity
	cookie uint64
	// rest is 64 bits of the content's keyed hash (see secret.content).
	rest uint64
}
