// Package sctp encodes and decodes the few SCTP packets that a reachability
// probe needs (RFC 9260): INIT, INIT ACK, ABORT and COOKIE ECHO, with their CRC32c.
//
// It is no SCTP implementation: no association is ever set up. It does no I/O;
// the lab sends its packets through raw sockets, so that SCTP can be probed on
// kernels without SCTP sockets. It is tested against the example of the RFC's
// checksum polynomial, by round trips and by a fuzz test.
package sctp

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
)

// Protocol is SCTP's IP protocol number.
const Protocol = 132

// ChunkType is the type of a chunk.
type ChunkType uint8

// The chunk types in use here.
const (
	Init    ChunkType = 1
	InitAck ChunkType = 2
	Abort   ChunkType = 6
	// CookieEcho is sent without a cookie: connection tracking looks at none.
	CookieEcho ChunkType = 10
)

// String returns the RFC's name of the chunk type.
func (t ChunkType) String() string {
	switch t {
	case Init:
		return "INIT"
	case InitAck:
		return "INIT ACK"
	case Abort:
		return "ABORT"
	case CookieEcho:
		return "COOKIE ECHO"
	}
	return fmt.Sprintf("chunk(%d)", uint8(t))
}

// Packet is an SCTP packet with one chunk.
type Packet struct {
	SourcePort, DestinationPort uint16
	// VerificationTag is the receiver's initiate tag; 0 in an INIT.
	VerificationTag uint32
	Chunk           ChunkType
	// InitiateTag is the sender's tag, in INIT and INIT ACK; never 0 there.
	InitiateTag uint32
}

// Sizes in bytes (RFC 9260, sections 3.1 to 3.3.3).
const (
	headerLen      = 12
	chunkHeaderLen = 4
	initLen        = chunkHeaderLen + 16
	cookieLen      = 4 + 8
)

// stateCookie is the parameter that an INIT ACK must carry.
const stateCookie = 7

// Errors of Parse.
var (
	ErrShort    = errors.New("sctp: packet is too short")
	ErrChecksum = errors.New("sctp: wrong checksum")
)

// Marshal returns the packet as it goes on the wire.
func (p Packet) Marshal() []byte {
	chunk := chunkHeaderLen
	switch p.Chunk {
	case Init:
		chunk = initLen
	case InitAck:
		chunk = initLen + cookieLen
	}
	b := make([]byte, headerLen+chunk)
	binary.BigEndian.PutUint16(b[0:], p.SourcePort)
	binary.BigEndian.PutUint16(b[2:], p.DestinationPort)
	binary.BigEndian.PutUint32(b[4:], p.VerificationTag)
	c := b[headerLen:]
	c[0] = byte(p.Chunk)
	binary.BigEndian.PutUint16(c[2:], uint16(chunk))
	if chunk >= initLen {
		binary.BigEndian.PutUint32(c[4:], p.InitiateTag)
		binary.BigEndian.PutUint32(c[8:], 65536) // receiver window
		binary.BigEndian.PutUint16(c[12:], 1)    // outbound streams
		binary.BigEndian.PutUint16(c[14:], 1)    // inbound streams
		binary.BigEndian.PutUint32(c[16:], p.InitiateTag)
	}
	if p.Chunk == InitAck {
		binary.BigEndian.PutUint16(c[initLen:], stateCookie)
		binary.BigEndian.PutUint16(c[initLen+2:], cookieLen)
	}
	// The CRC is sent least significant byte first, unlike all else.
	binary.LittleEndian.PutUint32(b[8:], checksum(b))
	return b
}

// Parse decodes a packet and its first chunk, and verifies the checksum.
func Parse(b []byte) (Packet, error) {
	if len(b) < headerLen+chunkHeaderLen {
		return Packet{}, ErrShort
	}
	if binary.LittleEndian.Uint32(b[8:]) != checksum(b) {
		return Packet{}, ErrChecksum
	}
	p := Packet{
		SourcePort:      binary.BigEndian.Uint16(b[0:]),
		DestinationPort: binary.BigEndian.Uint16(b[2:]),
		VerificationTag: binary.BigEndian.Uint32(b[4:]),
		Chunk:           ChunkType(b[headerLen]),
	}
	if p.Chunk == Init || p.Chunk == InitAck {
		if len(b) < headerLen+initLen {
			return Packet{}, ErrShort
		}
		p.InitiateTag = binary.BigEndian.Uint32(b[headerLen+chunkHeaderLen:])
	}
	return p, nil
}

// checksum is the CRC32c of the packet with its checksum field taken as zero.
func checksum(b []byte) uint32 {
	table := crc32.MakeTable(crc32.Castagnoli)
	crc := crc32.Update(0, table, b[:8])
	crc = crc32.Update(crc, table, []byte{0, 0, 0, 0})
	return crc32.Update(crc, table, b[12:])
}
