package sctp_test

import (
	"encoding/hex"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/felixlike/felixlike/internal/sctp"
)

func TestRoundTrip(t *testing.T) {
	for _, want := range []sctp.Packet{
		{SourcePort: 40000, DestinationPort: 80, Chunk: sctp.Init, InitiateTag: 0xdeadbeef},
		{SourcePort: 80, DestinationPort: 40000, VerificationTag: 0xdeadbeef, Chunk: sctp.InitAck, InitiateTag: 7},
		{SourcePort: 81, DestinationPort: 65535, VerificationTag: 1, Chunk: sctp.Abort},
	} {
		wire := want.Marshal()
		if len(wire)%4 != 0 {
			t.Errorf("%s: %d bytes, not a multiple of 4", want.Chunk, len(wire))
		}
		got, err := sctp.Parse(wire)
		if err != nil {
			t.Fatalf("%s: %v", want.Chunk, err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", want.Chunk, diff)
		}
	}
}

// TestWireFormat compares with bytes put together by hand from RFC 9260; the
// checksum is that of an independent bitwise implementation below.
func TestWireFormat(t *testing.T) {
	p := sctp.Packet{SourcePort: 1, DestinationPort: 2, Chunk: sctp.Init, InitiateTag: 3}
	wire := p.Marshal()
	want := "00010002" + "00000000" + "%CRC%" + "01000014" + "00000003" + "00010000" + "00010001" + "00000003"
	got := hex.EncodeToString(wire[:8]) + "%CRC%" + hex.EncodeToString(wire[12:])
	if got != want {
		t.Errorf("wire format\n got %s\nwant %s", got, want)
	}
	zeroed := append([]byte(nil), wire...)
	copy(zeroed[8:12], []byte{0, 0, 0, 0})
	crc := bitwiseCRC32c(zeroed)
	if wire[8] != byte(crc) || wire[9] != byte(crc>>8) || wire[10] != byte(crc>>16) || wire[11] != byte(crc>>24) {
		t.Errorf("checksum bytes % x, want %#08x least significant byte first", wire[8:12], crc)
	}
}

func bitwiseCRC32c(b []byte) uint32 {
	crc := ^uint32(0)
	for _, x := range b {
		crc ^= uint32(x)
		for range 8 {
			if crc&1 != 0 {
				crc = crc>>1 ^ 0x82f63b78
			} else {
				crc >>= 1
			}
		}
	}
	return ^crc
}

func TestParseErrors(t *testing.T) {
	wire := sctp.Packet{Chunk: sctp.Init, InitiateTag: 1}.Marshal()
	if _, err := sctp.Parse(wire[:10]); !errors.Is(err, sctp.ErrShort) {
		t.Errorf("short packet: %v", err)
	}
	wire[0] ^= 1
	if _, err := sctp.Parse(wire); !errors.Is(err, sctp.ErrChecksum) {
		t.Errorf("flipped bit: %v", err)
	}
}

func FuzzParse(f *testing.F) {
	f.Add(sctp.Packet{Chunk: sctp.InitAck, InitiateTag: 1}.Marshal())
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		p, err := sctp.Parse(b)
		if err == nil && len(b) < 16 {
			t.Errorf("accepted %d bytes as %+v", len(b), p)
		}
	})
}
