package policyflows

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/felixlike/felixlike/test/ovstest"
)

// TestConjunctionsInTheSwitch pins the treatment of conjunctions by ovs-vswitchd. The
// rendered flows and the evaluator of the tests rely on it. The deciding flow sets reg5,
// which shows the path of a packet; 99 is "none".
func TestConjunctionsInTheSwitch(t *testing.T) {
	b := ovstest.NewBridge(t)
	clause := func(priority int, match string, parts ...string) string {
		var actions []string
		for _, p := range parts {
			actions = append(actions, "conjunction("+p+")")
		}
		return fmt.Sprintf("table=50,priority=%d,%s,actions=%s", priority, match, strings.Join(actions, ","))
	}
	leads := func(priority, id int) string {
		return fmt.Sprintf("table=50,priority=%d,conj_id=%d,ip,actions=set_field:%d->reg5,goto_table:61", priority, id, id)
	}
	const web = "tcp,nw_src=10.1.1.1,nw_dst=10.2.0.1,tp_dst=80"
	// A rule for 10.1.0.0/16 and port 80, one for 10.1.1.0/24 and port 81.
	overlapping := []string{
		clause(200, "ip,nw_src=10.1.0.0/16", "1,1/2"), clause(200, "tcp,tp_dst=80", "1,2/2"),
		clause(200, "ip,nw_src=10.1.1.0/24", "2,1/2"), clause(200, "tcp,tp_dst=81", "2,2/2"),
		leads(190, 1), leads(190, 2),
	}
	simple := []string{clause(200, "ip,nw_src=10.1.1.1", "1,1/2"), clause(200, "tcp,tp_dst=80", "1,2/2"), leads(190, 1)}
	hard := func(priority int) string {
		return fmt.Sprintf("table=50,priority=%d,ip,nw_dst=10.2.0.1,actions=set_field:77->reg5,goto_table:61", priority)
	}
	for _, c := range []struct {
		name   string
		flows  []string
		packet string
		want   []int
	}{
		{"overlapping prefixes, the wider one's rule", overlapping, web, []int{1}},
		{"overlapping prefixes, the narrower one's rule", overlapping, strings.Replace(web, "tp_dst=80", "tp_dst=81", 1), []int{2}},
		{"overlapping prefixes, no rule", overlapping, strings.Replace(web, "tp_dst=80", "tp_dst=82", 1), []int{99}},
		{
			"overlapping prefixes, both rules: either",
			append(overlapping, clause(200, "tcp,tp_dst=82", "1,2/2", "2,2/2")),
			strings.Replace(web, "tp_dst=80", "tp_dst=82", 1),
			[]int{1, 2},
		},
		{"a hard flow at the priority of clauses wins", append(simple, hard(200)), web, []int{77}},
		{"a hard flow between clauses and action hides the conjunction", append(simple, hard(195)), web, []int{77}},
		{"but not one with the match of a clause", append(simple,
			"table=50,priority=195,ip,nw_src=10.1.1.1,actions=set_field:77->reg5,goto_table:61"), web, []int{1}},
		{"a hard flow below the action does not", append(simple, hard(189)), web, []int{1}},
		{"clauses between clauses and action do not", append(simple,
			clause(195, "ip,nw_src=10.1.1.1", "2,1/2"), clause(195, "tcp,tp_dst=81", "2,2/2"), leads(190, 2)), web, []int{1}},
		{"an incomplete conjunction falls back to a lower one", []string{
			clause(300, "ip,nw_src=10.1.1.1", "3,1/2"), clause(300, "tcp,tp_dst=81", "3,2/2"), leads(300, 3),
			clause(200, "ip,nw_src=10.1.1.1", "1,1/2"), clause(200, "tcp,tp_dst=80", "1,2/2"), leads(190, 1),
		}, web, []int{1}},
		{"a complete one at the higher priority wins", []string{
			clause(300, "ip,nw_src=10.1.1.1", "3,1/2"), clause(300, "tcp,tp_dst=80", "3,2/2"), leads(300, 3),
			clause(200, "ip,nw_src=10.1.1.1", "1,1/2"), clause(200, "tcp,tp_dst=80", "1,2/2"), leads(190, 1),
		}, web, []int{3}},
		{"a masked port", []string{
			clause(200, "ip,nw_src=10.1.1.1", "1,1/2"), clause(200, "tcp,tp_dst=0x1f90/0xfff0", "1,2/2"), leads(190, 1),
		}, strings.Replace(web, "tp_dst=80", "tp_dst=8095", 1), []int{1}},
		{"beside a masked port", []string{
			clause(200, "ip,nw_src=10.1.1.1", "1,1/2"), clause(200, "tcp,tp_dst=0x1f90/0xfff0", "1,2/2"), leads(190, 1),
		}, strings.Replace(web, "tp_dst=80", "tp_dst=8096", 1), []int{99}},
		{"a dimension of everything", []string{
			clause(200, "ip,nw_src=10.1.1.1", "1,1/2"), clause(200, "ip", "1,2/2"), leads(190, 1),
		}, web, []int{1}},
		{"a dimension by two flows at once", []string{
			clause(200, "ip,nw_src=10.1.1.1", "1,1/3"), clause(200, "ip,nw_dst=10.2.0.0/16", "1,2/3"), clause(200, "ip,nw_dst=10.2.0.1", "1,2/3"),
			clause(200, "tcp,nw_dst=10.2.0.1,tp_dst=80", "1,3/3"), leads(190, 1),
		}, web, []int{1}},
		{"a shared clause", []string{
			clause(200, "ip,nw_src=10.1.1.1", "1,1/2", "2,1/2"), clause(200, "tcp,tp_dst=81", "1,2/2"), clause(200, "tcp,tp_dst=80", "2,2/2"),
			leads(190, 1), leads(190, 2),
		}, web, []int{2}},
	} {
		t.Run(c.name, func(t *testing.T) {
			b.Ofctl("del-flows")
			b.Ofctl("add-flow", "table=0,priority=0,actions=goto_table:50")
			b.Ofctl("add-flow", "table=50,priority=0,actions=set_field:99->reg5,goto_table:61")
			for _, f := range c.flows {
				b.Ofctl("add-flow", f)
			}
			out := b.Run("ovs-appctl", "-t", b.Daemons.VSwitchdControl(), "ofproto/trace", "br-int", "in_port=2,"+c.packet)
			m := regexp.MustCompile(`set_field:(0x[0-9a-f]+|[0-9]+)->reg5`).FindAllStringSubmatch(out, -1)
			if len(m) != 1 {
				t.Fatalf("no verdict:\n%s", out)
			}
			got := 0
			if _, err := fmt.Sscanf(m[0][1], "%v", &got); err != nil {
				t.Fatal(err)
			}
			for _, want := range c.want {
				if got == want {
					return
				}
			}
			t.Errorf("flow %d decides, want %v:\n%s", got, c.want, out)
		})
	}
}
