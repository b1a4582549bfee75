package answer

import (
	"bytes"
	"encoding/hex"
	"net/netip"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/felixlike/felixlike/ovsfwd/conntrack"
)

// bytesOf reads hexadecimal digits with spaces.
func bytesOf(t *testing.T, text string) []byte {
	t.Helper()
	b, err := hex.DecodeString(strings.ReplaceAll(text, " ", ""))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// Rejected packets from 10.10.1.2 to 10.10.1.3 and from fd00::2 to fd00::3, without checksums.
const (
	ends4 = "0a0a0102 0a0a0103"
	ends6 = "fd000000000000000000000000000002 fd000000000000000000000000000003"
	// From port 0x1234 to port 80, with the sequence number 0x01020304.
	synText  = "1234 0050 01020304 00000000 5002 ffff 0000 0000"
	syn4     = "4500 0028 0001 4000 4006 0000 " + ends4 + synText
	syn6     = "60000000 0014 06 40" + ends6 + synText
	udpText  = "1234 0035 0009 0000 3f"
	udp4     = "4500 001d 0001 4000 4011 0000" + ends4 + udpText
	udp6     = "60000000 0009 11 40" + ends6 + udpText
	error4   = "4500 0024 0001 4000 4001 0000" + ends4 + " 0303 0000 00000000 00000000 00000000"
	request4 = "4500 001c 0001 4000 4001 0000" + ends4 + "0800 0000 00000000"
)

// TestAnswers has each kind of answer, without its checksums.
func TestAnswers(t *testing.T) {
	back4, back6 := "0a0a0103 0a0a0102", "fd000000000000000000000000000003 fd000000000000000000000000000002"
	for name, c := range map[string]struct{ packet, want string }{
		"SYN": {syn4, "4500 0028 0000 4000 4006 0000" + back4 + "0050 1234 00000000 01020305 5014 0000 0000 0000"},
		"ACK with data, in a padded frame": {
			"4500 002a 0001 4000 4006 0000" + ends4 + "1234 0050 01020304 0a0b0c0d 5010 ffff 0000 0000 4142 00000000",
			"4500 0028 0000 4000 4006 0000" + back4 + "0050 1234 0a0b0c0d 00000000 5004 0000 0000 0000",
		},
		"FIN with options and data, cut": {
			"4500 0068 0001 4000 4006 0000" + ends4 + "1234 0050 01020304 00000000 6001 ffff 0000 0000 01010101 41",
			"4500 0028 0000 4000 4006 0000" + back4 + "0050 1234 00000000 01020341 5014 0000 0000 0000",
		},
		"SYN, IPv6": {syn6, "60000000 0014 06 40" + back6 + "0050 1234 00000000 01020305 5014 0000 0000 0000"},
		"SYN behind an extension": {
			"60000000 001c 00 40" + ends6 + "06 00 0104 00000000" + synText,
			"60000000 0014 06 40" + back6 + "0050 1234 00000000 01020305 5014 0000 0000 0000",
		},
		"UDP":          {udp4, "4500 0038 0000 4000 4001 0000" + back4 + "030d 0000 00000000" + strings.TrimSuffix(udp4, "3f")},
		"UDP, IPv6":    {udp6, "60000000 0038 3a 40" + back6 + "0101 0000 00000000" + strings.TrimSuffix(udp6, "3f")},
		"echo request": {request4, "4500 0038 0000 4000 4001 0000" + back4 + "030d 0000 00000000" + request4},
	} {
		got, want := To(bytesOf(t, c.packet)), bytesOf(t, c.want)
		if got == nil {
			t.Errorf("%s: no answer", name)
			continue
		}
		checkSums(t, name, got)
		transport := headerIPv4
		if got[0]>>4 == 6 {
			transport = headerIPv6
		} else {
			copy(got[10:], []byte{0, 0})
		}
		at := transport + 2
		if want[transport+13] == 0x50 || bytes.Equal(want[transport:transport+2], []byte{0, 80}) {
			at = transport + 16
		}
		copy(got[at:], []byte{0, 0})
		if !bytes.Equal(got, want) {
			t.Errorf("%s: got\n%x\nwant\n%x", name, got, want)
		}
	}
}

// checkSums expects right checksums.
func checkSums(t *testing.T, name string, b []byte) {
	t.Helper()
	right := func(what string, b []byte) {
		t.Helper()
		sum := uint32(0)
		for i := 0; i < len(b); i += 2 {
			sum += uint32(b[i])<<8 | uint32(b[i+1])
		}
		for sum > 0xffff {
			sum = sum>>16 + sum&0xffff
		}
		if sum != 0xffff {
			t.Errorf("%s: wrong checksum of %s", name, what)
		}
	}
	if b[0]>>4 == 4 {
		right("the header", b[:headerIPv4])
		if b[9] == unix.IPPROTO_ICMP {
			right("ICMP", b[headerIPv4:])
			return
		}
		right("TCP", append([]byte{0, b[9], 0, byte(len(b) - headerIPv4)}, b[12:]...))
		return
	}
	right("the transport", append([]byte{0, b[6], b[4], b[5]}, b[8:]...))
}

// TestNoAnswer has packets that must not be answered, and all beginnings of others.
func TestNoAnswer(t *testing.T) {
	for name, text := range map[string]string{
		"nothing":               "",
		"a reset":               strings.Replace(syn4, "5002", "5004", 1),
		"a reset, IPv6":         strings.Replace(syn6, "5002", "5014", 1),
		"an ICMP error":         error4,
		"an ICMP redirect":      strings.Replace(error4, " 0303", "0501", 1),
		"an ICMPv6 error":       "60000000 0010 3a 40" + ends6 + "0104 0000 00000000 00000000 00000000",
		"a first fragment":      strings.Replace(udp4, "4000", "2000", 1),
		"a later fragment":      strings.Replace(udp4, "4000", "0010", 1),
		"a fragment, IPv6":      "60000000 0011 2c 40" + ends6 + "11 00 0001 00000000" + udpText,
		"to a multicast":        strings.Replace(udp4, "0a0a0103", "e0000001", 1),
		"to a broadcast":        strings.Replace(udp4, "0a0a0103", "ffffffff", 1),
		"from nowhere":          strings.Replace(udp4, "0a0a0102", "00000000", 1),
		"to a multicast, IPv6":  strings.Replace(udp6, "fd000000000000000000000000000003", "ff020000000000000000000000000001", 1),
		"ICMPv6 over IPv4":      strings.Replace(request4, "4001", "403a", 1),
		"another IP version":    "5" + syn4[1:],
		"a TCP header too long": strings.Replace(syn4, "5002", "f002", 1),
		"an IP header too long": "4f" + udp4[2:],
	} {
		if got := To(bytesOf(t, text)); got != nil {
			t.Errorf("%s: answered with %x", name, got)
		}
	}
	for _, text := range []string{syn4, syn6} {
		b := bytesOf(t, text)
		for n := range len(b) {
			if got := To(b[:n]); got != nil {
				t.Errorf("%x: answered with %x", b[:n], got)
			}
		}
	}
}

// TestNoAnswerToAnswers: an answer gets none, so two nodes cannot answer each other for ever.
func TestNoAnswerToAnswers(t *testing.T) {
	for _, text := range []string{syn4, syn6, udp4, udp6, request4} {
		if got := To(To(bytesOf(t, text))); got != nil {
			t.Errorf("the answer to %s is answered", text)
		}
	}
}

// FuzzTo reads any bytes. An answer goes back to the source, has no more than a header more than its
// packet, and is not answered.
func FuzzTo(f *testing.F) {
	for _, text := range []string{syn4, syn6, udp4, udp6, error4, request4} {
		b, err := hex.DecodeString(strings.ReplaceAll(text, " ", ""))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	src, dst := netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.2")
	f.Add(conntrack.Frame(conntrack.Tuple{Protocol: unix.IPPROTO_SCTP, Src: src, Dst: dst}, 0)[14:])
	f.Fuzz(func(t *testing.T, b []byte) {
		got := To(b)
		if got == nil {
			return
		}
		if len(got) > len(b)+headerIPv6+headerICMP {
			t.Errorf("%d bytes are answered with %d", len(b), len(got))
		}
		if again := To(got); again != nil {
			t.Errorf("%x is answered with %x, and that with %x", b, got, again)
		}
	})
}
