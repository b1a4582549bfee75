package install

import (
	"net"
	"os"
	"strings"
	"testing"

	"github.com/felixlike/felixlike/internal/namespace"
	"github.com/felixlike/felixlike/ovsfwd/ovsdb"
)

// TestSNAT: programs that listen on the ports of translated connections are named, and a datapath without translation.
func TestSNAT(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: network namespaces")
	}
	ns, err := namespace.Anonymous()
	if err != nil {
		t.Fatal(err)
	}
	defer ns.Close()
	check := func(o Options, level Level, want string) {
		t.Helper()
		if got, text := o.snat(t.Context()); got != level || !strings.Contains(text, want) {
			t.Errorf("%s: %s, want %s: %s", got, text, level, want)
		}
	}
	err = ns.Do(func() error {
		check(Options{}, Good, "by the host")
		check(Options{SNAT: true, InUse: ovsdb.DatapathSystem}, Missing, "needs datapath netdev")
		check(Options{SNAT: true, InUse: ovsdb.DatapathNetdev}, Good, "no program listens on ports 10000 to 20000")
		for _, address := range []string{"0.0.0.0:10250", "0.0.0.0:9999"} {
			l, err := net.Listen("tcp", address)
			if err != nil {
				return err
			}
			defer l.Close()
		}
		u, err := net.ListenPacket("udp", "[::]:20000")
		if err != nil {
			return err
		}
		defer u.Close()
		check(Options{SNAT: true, InUse: ovsdb.DatapathNetdev}, Noted, "programs of the node listen on tcp/10250, udp/20000")
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
