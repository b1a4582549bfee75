package ipvs

import (
	"strings"
	"testing"
)

// TestHasService reads listings as the kernel writes them. The lines of destinations are
// indented.
func TestHasService(t *testing.T) {
	const head = "IP Virtual Server version 1.2.1 (size=4096)\nProt LocalAddress:Port Scheduler Flags\n  -> RemoteAddress:Port Forward Weight ActiveConn InActConn\n"
	for _, test := range []struct {
		listing string
		want    bool
	}{
		{"", false},
		{head, false},
		{head + "TCP  0A600001:01BB rr \n  -> AC120003:192B      Masq    1      0          0         \n", true},
		{head + "UDP  [fd00:0096:0000:0000:0000:0000:0000:000a]:0035 rr \n", true},
		{head + "SCTP 0A600002:0050 rr \n", true},
		{head + "FWM  00000001 rr \n", true},
	} {
		if got, err := hasService(strings.NewReader(test.listing)); err != nil || got != test.want {
			t.Errorf("%q: %v, %v; want %v", test.listing, got, err, test.want)
		}
	}
}
