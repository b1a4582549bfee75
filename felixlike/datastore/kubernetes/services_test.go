package kubernetes_test

import (
	"fmt"
	"net/http"
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/test/kubernetestest"
)

func TestServiceCIDRs(t *testing.T) {
	f := newFixture(t)
	v := f.open(t)
	check := func(when, want string) {
		t.Helper()
		if got := fmt.Sprint(v.Sync(t).Services); got != want {
			t.Errorf("%s: %s, want %s", when, got, want)
		}
	}
	check("at first", "[10.96.0.0/16]")
	f.serviceCIDR(t, "more", "10.112.0.0/16", "fd00:96::/112")
	check("one more", "[10.96.0.0/16 10.112.0.0/16 fd00:96::/112]")
	if err := f.NetworkingV1().ServiceCIDRs().Delete(t.Context(), "more", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	check("without it", "[10.96.0.0/16]")
}

// TestNoServiceCIDRs: an API server that has no such kind, or does not let us read
// it, holds nothing up.
func TestNoServiceCIDRs(t *testing.T) {
	for _, status := range []int{http.StatusNotFound, http.StatusForbidden} {
		t.Run(http.StatusText(status), func(t *testing.T) {
			f := newFixture(t)
			f.Refuse(status, "servicecidrs")
			f.pods(t, "a")
			v := f.open(t)
			seen := v.Until(t, "in sync", func(s kubernetestest.Seen) bool { return s.Last.InSync })
			if seen.Services != nil || !has("a")(seen) {
				t.Errorf("services: %v", seen.Services)
			}
			if reported := len(seen.Last.Problems) == 1; reported != (status == http.StatusForbidden) {
				t.Errorf("problems: %v", seen.Last.Problems)
			}
			v.Sync(t)
		})
	}
}

// TestServiceCIDRsOfAnAPIServerThatBegins: until it has read its roles, an API server
// forbids everything. That is not taken for a lack of rights.
func TestServiceCIDRsOfAnAPIServerThatBegins(t *testing.T) {
	f := newFixture(t)
	f.Refuse(http.StatusForbidden)
	v := f.open(t)
	v.Until(t, "everything is forbidden", func(s kubernetestest.Seen) bool {
		return slices.ContainsFunc(s.Last.Problems, func(p model.Problem) bool { return p.Field == "servicecidrs" })
	})
	f.Refuse(0)
	if seen := v.Until(t, "in sync", func(s kubernetestest.Seen) bool { return s.Last.InSync }); fmt.Sprint(seen.Services) != "[10.96.0.0/16]" {
		t.Errorf("in sync with the Services' %v", seen.Services)
	}
}
