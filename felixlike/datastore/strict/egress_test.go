package strict

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/felixlike/felixlike/felixlike/antrea"
)

// TestDecodeEgress: an Egress with a fault has no address, and keeps its pods if its appliedTo has no fault.
func TestDecodeEgress(t *testing.T) {
	pods := antrea.AppliedTo{PodSelector: &metav1.LabelSelector{}}
	for _, c := range []struct {
		spec string
		want antrea.EgressSpec
	}{
		{`{"egressIP":"192.0.2.1","appliedTo":{"podSelector":{}}}`, antrea.EgressSpec{EgressIP: "192.0.2.1", AppliedTo: pods}},
		{`{"egressIP":"192.0.2.1","appliedTo":{"podSelector":{}},"pool":"p"}`, antrea.EgressSpec{AppliedTo: pods}},
		{`{"egressIP":7,"appliedTo":{"podSelector":{}}}`, antrea.EgressSpec{AppliedTo: pods}},
		{`{"egressIP":"192.0.2.1","appliedTo":{"pods":{}}}`, antrea.EgressSpec{}},
		{`{"egressIP":"192.0.2.1","appliedTo":[]}`, antrea.EgressSpec{}},
		{`7`, antrea.EgressSpec{}},
	} {
		for _, kind := range []antrea.Kind{antrea.KindEgress, antrea.KindNodeEgress} {
			object, _ := DecodeAntrea(kind, []byte(`{"spec":`+c.spec+`}`))
			if diff := cmp.Diff(c.want, antrea.EgressOf(object).EgressSpec); diff != "" {
				t.Errorf("%s %s (-want +got):\n%s", kind, c.spec, diff)
			}
		}
	}
}
