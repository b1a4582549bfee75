// Package vm tests the scripts beside it that need no virtual machine. It holds only tests.
package vm

import (
	"os/exec"
	"strings"
	"testing"
)

// TestInstructions: the times of a report become instructions, with a column for each backend.
func TestInstructions(t *testing.T) {
	const report = `
| what | nftables |
| --- | ---:|
| first load, CPU | 1.46 s |

| what | backend | wall | CPU | in kernel |
| --- | --- | ---:| ---:| ---:|
| first load | nftables | 7.06 s | 3.46 s | 47 % |
|   ratio of the two, in pairs | nftables | 1.77 x | 1.10 x |  |
|   before it | nftables | 1.44 s | 1.19 s |  |
| first load | iptables-nft | 7.06 s | 5.19 s | 47 % |
| restart | nftables | 3 s | 1.45 s | 47 % |
|   before it | nftables | 1.44 s | 1.2 s |  |
| reading the objects |  | 9.05 s | 9.25 s | 2 % |

nftables: 12,245 rules.

| what | backend | p50 | CPU each | writes |
| --- | --- | ---:| ---:| ---:|
| one rule changed | nftables | 4 ms | 3.83 ms | 2 |
| one pod joins a group | nftables | 600 us | 512 us | 1 |
`
	const want = `| 10^9 instructions, kernel 6.1 | nftables | iptables-nft |
|---|---:|---:|
| first load | 3.46 | 5.19 |
| ratio of the two, in pairs | 1.10 x | |
| before it | 1.19 | |
| restart | 1.45 | |
| one rule changed | 0.00383 | |
| one pod joins a group | 0.000512 | |
`
	run := func(in string) (string, error) {
		c := exec.CommandContext(t.Context(), "./instructions", "6.1")
		c.Stdin = strings.NewReader(in)
		out, err := c.Output()
		return string(out), err
	}
	if got, err := run(report); err != nil || got != want {
		t.Errorf("%v\n%s\nwant\n%s", err, got, want)
	}
	if got, err := run("nothing"); err == nil {
		t.Errorf("no error for a report without times: %q", got)
	}
}
