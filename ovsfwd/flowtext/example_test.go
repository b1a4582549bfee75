package flowtext_test

import (
	"fmt"
	"strings"

	"github.com/felixlike/felixlike/ovsfwd/flowtext"
)

// felixctl dump reads what ovs-ofctl lists. Flows that mean the same become equal, whatever their notation.
func ExampleRead() {
	listing := `NXST_FLOW reply (xid=0x4):
 cookie=0xf11c010000000001, duration=5.1s, table=70, n_packets=3, n_bytes=294, priority=200,ip,nw_dst=10.10.0.2 actions=load:0x3->NXM_NX_REG1[],resubmit(,72)
`
	flows, err := flowtext.Read(strings.NewReader(listing))
	if err != nil {
		fmt.Println(err)
		return
	}
	f := flows[0]
	f.Normalise()
	fmt.Printf("%#x has sent %d packets through table %d\n", f.Owner(), f.Packets, f.Table)
	fmt.Println(f.MatchText(), "actions="+f.ActionsText())
	// Output:
	// 0xf11c has sent 3 packets through table 70
	// ip,nw_dst=10.10.0.2 actions=set_field:0x3->reg1,goto_table:72
}

// A flow with an action that felixlike does not write keeps its text: a packet walk stops there.
func ExampleParse() {
	f, err := flowtext.Parse("table=0,priority=1,ip actions=fin_timeout(idle_timeout=5)")
	fmt.Println(f.Foreign, err)
	// Output:
	// ip actions=fin_timeout(idle_timeout=5) <nil>
}
