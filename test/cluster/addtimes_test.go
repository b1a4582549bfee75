package cluster

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// Shim puts a script in the plugin's place that records the time of each ADD,
// as the runtime sees it.
const (
	shim = `
cd /opt/cni/bin && mv felixlike-cni .felixlike-cni && rm -f /run/add-times && cat >felixlike-cni.new <<'S'
#!/bin/bash
begin=$EPOCHREALTIME
/opt/cni/bin/.felixlike-cni "$@"
code=$?
[ "$CNI_COMMAND" = ADD ] && echo "$begin $EPOCHREALTIME $code" >>/run/add-times
exit $code
S
chmod +x felixlike-cni.new && mv felixlike-cni.new felixlike-cni`
	unshim = `cd /opt/cni/bin && mv -f .felixlike-cni felixlike-cni && cat /run/add-times && rm /run/add-times`
)

// timeAdds records the time of each ADD on all nodes. The returned function prints
// the times, and puts the plugin back.
func timeAdds(t *testing.T, s *site) (report func()) {
	t.Helper()
	for _, node := range s.Nodes() {
		s.exec(t, node, shim)
	}
	return func() {
		t.Helper()
		var took []time.Duration
		failed := 0
		for _, node := range s.Nodes() {
			for line := range strings.Lines(s.exec(t, node, unshim)) {
				d, err := parseAdd(line)
				if err != nil {
					t.Logf("%s: %v", node, err)
					failed++
					continue
				}
				took = append(took, d)
			}
		}
		if len(took) == 0 {
			t.Fatal("no ADD was seen")
		}
		slices.Sort(took)
		at := func(percent int) time.Duration {
			return took[(len(took)-1)*percent/100].Round(time.Millisecond)
		}
		t.Logf("%d ADDs: p50 %s, p99 %s, longest %s; %d failed and were tried again", len(took), at(50), at(99), at(100), failed)
	}
}

// parseAdd reads "begin end code".
func parseAdd(line string) (time.Duration, error) {
	words := strings.Fields(line)
	if len(words) != 3 {
		return 0, fmt.Errorf("not begin, end, code: %q", line)
	}
	begin, err := strconv.ParseFloat(words[0], 64)
	if err != nil {
		return 0, err
	}
	end, err := strconv.ParseFloat(words[1], 64)
	if err != nil {
		return 0, err
	}
	if words[2] != "0" {
		return 0, fmt.Errorf("ADD failed with code %s after %.3f s", words[2], end-begin)
	}
	return time.Duration((end - begin) * float64(time.Second)), nil
}
