package cli

import (
	"strings"
	"testing"
)

// TestNameOfTheLab: a lab that is not there is an error that says so, by either flag. A name without
// a flag is refused with the right one.
func TestNameOfTheLab(t *testing.T) {
	for _, c := range []struct{ args, want string }{
		{"down --name typo", "lab typo: there is no such lab"},
		{"down --lab typo", "lab typo: there is no such lab"},
		{"delete --name typo", "lab typo: there is no such lab"},
		{"down typo", `lab down takes no argument, and "typo" is one: a lab is named by --name typo`},
		{"status typo", `lab status takes no argument, and "typo" is one: a lab is named by --name typo`},
	} {
		command := Commands()
		command.SilenceUsage, command.SilenceErrors = true, true
		command.SetArgs(append(strings.Fields(c.args), "--root", t.TempDir()))
		if err := command.ExecuteContext(t.Context()); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.args, err, c.want)
		}
	}
	if f := Commands().PersistentFlags().Lookup("lab"); f == nil || f.DefValue != "lab" {
		t.Errorf("flag %+v", f)
	}
}
