package nfnetlink

import (
	"bytes"
	"encoding/binary"
)

// CString returns the bytes of a string with the NUL that ends it in an attribute.
func CString(s string) []byte { return append([]byte(s), 0) }

// Text returns the string of an attribute, without the NULs behind it.
func Text(b []byte) string { return string(Trimmed(b)) }

// Trimmed returns the bytes of Text, without a copy.
func Trimmed(b []byte) []byte { return bytes.TrimRight(b, "\x00") }

// Uint32 decodes a number of 32 bits in network order, as nfnetlink's attributes have
// them. It returns zero if the attribute has another size.
func Uint32(b []byte) uint32 {
	if len(b) != 4 {
		return 0
	}
	return binary.BigEndian.Uint32(b)
}

// Uint64 decodes a number of 64 bits in network order. It returns zero if the attribute
// has another size.
func Uint64(b []byte) uint64 {
	if len(b) != 8 {
		return 0
	}
	return binary.BigEndian.Uint64(b)
}
