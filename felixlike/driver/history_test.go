package driver

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/felixlike/felixlike/felixlike/datastore"
	"github.com/felixlike/felixlike/felixlike/driver/drivertest"
	"github.com/felixlike/felixlike/test/eventually"
)

// A slow policy is refused also if its tenant deletes and creates it again around each apply.
// It stays refused, and changes of others are in force.
func TestRecreatedSlowPolicyIsRefused(t *testing.T) {
	deleted := datastore.NetworkPolicyDeleted{Namespace: "x", Name: "evil"}
	unreadable := datastore.NetworkPolicyClosed{Namespace: "x", Name: "evil"}
	unreadable.PodSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"name": "a"}}
	for size, ports := range map[string]int{"large": 300, "small": 1} {
		for when, gone := range map[string]datastore.Event{"at once": deleted, "later": deleted, "unreadable": unreadable} {
			t.Run(size+" "+when, func(t *testing.T) {
				f, table := startSlow(t, &drivertest.LogBuffer{})
				table.setSlow("networkpolicy/x/evil")
				refused := func() bool { return len(f.Status().Quarantined) == 1 && f.Status().Quarantined[0].Attempts > 0 }
				for i, end := 0, time.Now().Add(eventually.Patience); !refused(); i++ {
					if time.Now().After(end) {
						t.Fatal("the policy is not refused")
					}
					entered := table.count()
					f.Source.Send(true, ruled("evil", "a", 3, ports), ruled("other", "b", 1+i%2, 1))
					eventually.True(t, "an apply", func() bool { return table.count() > entered || refused() })
					if refused() {
						break
					}
					f.Source.Send(true, gone)
					if when == "later" {
						entered = table.count()
						eventually.True(t, "the next apply", func() bool { return table.count() > entered })
					}
				}
				for i := range 5 {
					f.Source.Send(true, gone)
					f.Source.Send(true, ruled("evil", "a", 3, ports), ruled("other", "b", 1+i%2, 1))
					if err := programmed(t, f, podB); err != nil {
						t.Fatal(err)
					}
					if got := table.programmed(); got["networkpolicy/x/evil"] != 0 || got["networkpolicy/x/other"] != 1+i%2 {
						t.Errorf("programmed %v", got)
					}
				}
				if q := f.Status().Quarantined; len(q) != 1 || q[0].Attempts != 1 {
					t.Errorf("quarantined: %+v", q)
				}
			})
		}
	}
}
