package ipsets

import (
	"strings"
	"testing"

	"github.com/felixlike/felixlike/model"
)

func TestKernelNames(t *testing.T) {
	longest := model.GroupID("a" + strings.Repeat("9", 23))
	for set, want := range map[string]string{
		Name("aone", model.IPv4):      "flx-aone-4",
		Name(longest, model.IPv6):     "flx-" + string(longest) + "-6",
		"":                            "flx-",
		strings.Repeat("x", 26):       "flx-" + strings.Repeat("x", 26),
		strings.Repeat("x", 27):       "flx-xxx-5JCj16PoCZUPv5u1BxwWVB",
		strings.Repeat("x", 27) + "y": "flx-xxx-",
	} {
		got := KernelName(set)
		if len(got) > 30 || !strings.HasPrefix(got, want) || len(set) <= 26 && got != want {
			t.Errorf("kernel name of %q: %q, want %q", set, got, want)
		}
		if got != KernelName(set) {
			t.Errorf("kernel name of %q changes", set)
		}
	}
	if a, b := KernelName(strings.Repeat("x", 40)+"a"), KernelName(strings.Repeat("x", 40)+"b"); a == b {
		t.Errorf("two sets share the name %q", a)
	}
}
