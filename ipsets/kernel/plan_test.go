package kernel

import (
	"strings"
	"testing"

	"github.com/felixlike/felixlike/ipsets"
	"github.com/felixlike/felixlike/model"
)

// Two sets have two temporary names, which are no set's own and which the kernel takes.
func TestTemporaryNames(t *testing.T) {
	seen := map[string]bool{}
	for _, id := range []string{"a", strings.Repeat("a", 24), strings.Repeat("a", 23) + "b", strings.Repeat("a", 40)} {
		for _, f := range model.Families() {
			name := ipsets.KernelName(ipsets.Name(model.GroupID(id), f))
			temporary := temporaryName(name)
			if len(temporary) > 31 || !strings.HasPrefix(temporary, ipsets.KernelPrefix) || seen[name] || seen[temporary] {
				t.Errorf("set %s: temporary name %s", name, temporary)
			}
			seen[name], seen[temporary] = true, true
		}
	}
}
