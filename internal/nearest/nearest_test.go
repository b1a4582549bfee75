package nearest

import (
	"io"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

func TestOf(t *testing.T) {
	known := []string{"nftables", "iptables", "iptables-nft", "openflow", "up", "mtu"}
	for word, want := range map[string]string{
		"nftabels": "nftables", "ntables": "nftables", "NFTables": "nftables", "iptable": "iptables", "openflows": "openflow", "iptables-ntf": "iptables-nft",
		"ebpf": "", "": "", "x": "", "pu": "", "mut": "mtu", "updown": "",
	} {
		if got := Of(word, known); got != want {
			t.Errorf("%q: %q, want %q", word, got, want)
		}
	}
}

// TestErrors: an unknown command and an unknown flag are answered with the one that is near.
func TestErrors(t *testing.T) {
	for args, want := range map[string]string{
		"group stauts":        `unknown command "stauts" for "root group", did you mean "status"?`,
		"group sing":          `unknown command "sing" for "root group"`,
		"group status --lba":  "unknown flag: --lba, did you mean --lab?",
		"group status --tmie": "unknown flag: --tmie, did you mean --time?",
		"group status --zzz":  "unknown flag: --zzz (see root group status --help)",
		"group status -z":     "unknown shorthand flag: 'z' in -z",
	} {
		root := &cobra.Command{Use: "root", SilenceErrors: true, SilenceUsage: true}
		root.SetFlagErrorFunc(FlagError)
		root.PersistentFlags().String("time", "", "")
		group := &cobra.Command{Use: "group", Args: Command, RunE: func(c *cobra.Command, _ []string) error { return c.Help() }}
		status := &cobra.Command{Use: "status", Run: func(*cobra.Command, []string) {}}
		status.Flags().String("lab", "", "")
		group.AddCommand(status)
		root.AddCommand(group)
		root.SetOut(io.Discard)
		root.SetArgs(strings.Fields(args))
		if err := root.ExecuteContext(t.Context()); err == nil || err.Error() != want {
			t.Errorf("%s: %v, want %s", args, err, want)
		}
	}
}
