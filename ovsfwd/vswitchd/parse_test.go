package vswitchd

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/felixlike/felixlike/ovsfwd/conntrack"
)

func ends(protocol uint8, src, dst string) conntrack.Tuple {
	s, d := netip.MustParseAddrPort(src), netip.MustParseAddrPort(dst)
	return conntrack.Tuple{Protocol: protocol, Src: s.Addr(), Dst: d.Addr(), SrcPort: s.Port(), DstPort: d.Port()}
}

func TestParseConnections(t *testing.T) {
	tcp := ends(unix.IPPROTO_TCP, "10.9.0.1:43920", "10.9.0.2:99")
	udp := ends(unix.IPPROTO_UDP, "[fd09::1]:45965", "[fd09::2]:97")
	echo := conntrack.Tuple{
		Protocol: unix.IPPROTO_ICMPV6, Src: netip.MustParseAddr("fd09::1"), Dst: netip.MustParseAddr("fd09::2"), ICMPID: 1929, ICMPType: 128,
	}
	allowed := conntrack.Label{High: 1}
	for _, c := range []struct {
		line string
		want conntrack.Connection
	}{
		{
			"tcp,orig=(src=10.9.0.1,dst=10.9.0.2,sport=43920,dport=99),reply=(src=10.9.0.2,dst=10.9.0.1,sport=99,dport=43920),id=0,zone=65520,status=0,timeout=86398," +
				"mark=32,labels=0x10000000000000000,protoinfo=(state_orig=ESTABLISHED,state_reply=ESTABLISHED,wscale_orig=10,wscale_reply=10,flags_orig=WINDOW_SCALE,flags_reply=WINDOW_SCALE)",
			conntrack.Connection{
				Zone: 65520, Original: tcp, Reply: tcp.Reverse(), State: conntrack.StateEstablished, Replied: true, Mark: 0x20, Label: allowed, Timeout: 86398 * time.Second,
			},
		},
		{
			"tcp,orig=(src=10.9.0.1,dst=10.9.0.2,sport=43920,dport=99),reply=(src=10.9.0.2,dst=10.9.0.1,sport=99,dport=43920),id=0,zone=65520,status=0,timeout=29," +
				"protoinfo=(state_orig=SYN_SENT,state_reply=CLOSED,wscale_orig=0,wscale_reply=0,flags_orig=BE_LIBERAL,flags_reply=BE_LIBERAL)",
			conntrack.Connection{Zone: 65520, Original: tcp, Reply: tcp.Reverse(), State: conntrack.StateSynSent, Liberal: true, Timeout: 29 * time.Second},
		},
		{
			"udp,orig=(src=fd09::1,dst=fd09::2,sport=45965,dport=97),reply=(src=fd09::2,dst=fd09::1,sport=97,dport=45965),id=0,status=0,timeout=58,labels=0xffffffff00000002",
			conntrack.Connection{Original: udp, Reply: udp.Reverse(), Label: conntrack.Label{Low: 0xffffffff00000002}, Timeout: 58 * time.Second},
		},
		{
			"icmpv6,orig=(src=fd09::1,dst=fd09::2,id=1929,type=128,code=0),reply=(src=fd09::2,dst=fd09::1,id=1929,type=129,code=0),id=0,zone=65520,status=0,timeout=27",
			conntrack.Connection{Zone: 65520, Original: echo, Reply: echo.Reverse(), Replied: true, Timeout: 27 * time.Second},
		},
	} {
		got, err := parseConnections(c.line + "\n")
		if err != nil || len(got) != 1 {
			t.Errorf("%s: %v %v", c.line, got, err)
			continue
		}
		if got[0] != c.want {
			t.Errorf("%s:\n got %+v\nwant %+v", c.line, got[0], c.want)
		}
	}
}

func TestParseStates(t *testing.T) {
	for text, want := range map[string]conntrack.State{
		"state=ESTABLISHED":                             conntrack.StateEstablished,
		"state_orig=SYN_SENT,state_reply=CLOSED":        conntrack.StateSynSent,
		"state_orig=ESTABLISHED,state_reply=SYN_SENT":   conntrack.StateEstablished,
		"state_orig=FIN_WAIT_2,state_reply=ESTABLISHED": conntrack.StateFinWait,
		"state_orig=FIN_WAIT_2,state_reply=FIN_WAIT_2":  conntrack.StateTimeWait,
		"state_orig=TIME_WAIT,state_reply=TIME_WAIT":    conntrack.StateTimeWait,
	} {
		if got, err := parseState(text); err != nil || got != want {
			t.Errorf("%s: %d %v, want %d", text, got, err, want)
		}
	}
}

func TestMalformedLinesAreNamedAndLeftOut(t *testing.T) {
	good := "udp,orig=(src=10.9.0.1,dst=10.9.0.2,sport=1,dport=2),reply=(src=10.9.0.2,dst=10.9.0.1,sport=2,dport=1),timeout=9"
	for bad, reason := range map[string]string{
		"carp,orig=(src=10.9.0.1":                                              "unknown protocol",
		"udp,orig=(src=10.9.0.1,dst=10.9.0.2":                                  "no closing bracket",
		"udp,orig=(src=10.9.0.1,dst=10.9.0.2),timeout=9":                       "a direction is missing",
		"udp,orig=(src=10.9.0.1,dst=fd09::1)":                                  "one family",
		"udp,orig=(src=10.9.0.1,dst=10.9.0.2,sport=99999)":                     "too large",
		strings.Replace(good, "timeout=9", "labels=7", 1):                      "no label",
		strings.Replace(good, "timeout=9", "timeout", 1):                       "no value",
		strings.Replace(good, "udp", "tcp", 1) + ",protoinfo=(state=SLEEPING)": "unknown state",
	} {
		got, err := parseConnections(good + "\n" + bad + "\n" + good + "\n")
		if len(got) != 2 || err == nil || !strings.Contains(err.Error(), reason) {
			t.Errorf("%s: %d connections, error %v; want two and %q", bad, len(got), err, reason)
		}
	}
}

func FuzzParseConnections(f *testing.F) {
	f.Add("tcp,orig=(src=10.9.0.1,dst=10.9.0.2,sport=1,dport=2),reply=(src=10.9.0.2,dst=10.9.0.1,sport=2,dport=1),zone=65520,mark=32,labels=0x1,protoinfo=(state=ESTABLISHED)")
	f.Add("icmpv6,orig=(src=fd09::1,dst=fd09::2,id=1,type=128,code=0),reply=(src=fd09::2,dst=fd09::1,id=1,type=129,code=0),timeout=27")
	f.Add("udp,orig=(,reply=)=(")
	f.Fuzz(func(t *testing.T, text string) {
		all, _ := parseConnections(text)
		for _, c := range all {
			// A parsed connection can be named again.
			if !c.Original.Src.IsValid() || c.Original.Src.Is4() != c.Original.Dst.Is4() || tupleArg(c.Original) == "" {
				t.Errorf("%q gives %+v", text, c)
			}
		}
	})
}
