package pipeline

import (
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/felixlike/felixlike/ovsfwd/internal/ovstest"
)

// canonical brings a flow to a form in which OpenFlow 1.3's load and 1.5's
// set_field read the same.
func canonical(t *testing.T, flow string) string {
	t.Helper()
	match, actions, found := strings.Cut(ovstest.Normalise(flow), " actions=")
	if !found {
		t.Fatalf("no actions in %q", flow)
	}
	words := strings.Split(actions, ",")
	for i, w := range words {
		words[i] = canonicalAction(t, w)
	}
	return match + " actions=" + strings.Join(words, ",")
}

var (
	loadAction = regexp.MustCompile(`^load:(\w+)->NXM_(?:OF|NX)_(\w+)\[(?:(\d+)(?:\.\.(\d+))?)?\]$`)
	setReg     = regexp.MustCompile(`^set_field:(\w+)(?:/(\w+))?->(reg\d)$`)
)

func canonicalAction(t *testing.T, action string) string {
	t.Helper()
	if m := setReg.FindStringSubmatch(action); m != nil {
		mask := uint64(0xffffffff)
		if m[2] != "" {
			mask = parse(t, m[2])
		}
		return fmt.Sprintf("%s:=%#x/%#x", m[3], parse(t, m[1]), mask)
	}
	m := loadAction.FindStringSubmatch(action)
	if m == nil {
		return action
	}
	value := parse(t, m[1])
	switch name := strings.ToLower(m[2]); name {
	case "arp_op":
		return fmt.Sprintf("set_field:%d->arp_op", value)
	case "arp_sha":
		b := binary.BigEndian.AppendUint64(nil, value)
		return fmt.Sprintf("set_field:%s->arp_sha", net.HardwareAddr(b[2:]))
	case "arp_spa":
		return fmt.Sprintf("set_field:%s->arp_spa", ipv4(value))
	case "tun_ipv4_dst":
		return fmt.Sprintf("set_field:%s->tun_dst", ipv4(value))
	default:
		first, last := uint64(0), uint64(31)
		if m[3] != "" {
			first = parse(t, m[3])
			last = first
		}
		if m[4] != "" {
			last = parse(t, m[4])
		}
		mask := (uint64(1)<<(last-first+1) - 1) << first
		return fmt.Sprintf("%s:=%#x/%#x", name, value<<first, mask)
	}
}

func ipv4(value uint64) netip.Addr {
	b := binary.BigEndian.AppendUint32(nil, uint32(value))
	return netip.AddrFrom4([4]byte(b))
}

func parse(t *testing.T, s string) uint64 {
	t.Helper()
	n, err := strconv.ParseUint(s, 0, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}
