package hosts

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/felixlike/felixlike/felixlike/hosts/boot"
	"github.com/felixlike/felixlike/test/eventually"
)

// TestSystemd: a machine that boots with systemd, with the unit of the real installer and the record of an agent, has the confirmed policies in the kernel
// before its network begins, and after Debian's firewall has flushed all rules. Failsafe ports serve. The machine reaches its default target, whatever is
// in the record. If the record is damaged, the one before it counts; if both are, the unit fails by name, and the node is open.
func TestSystemd(t *testing.T) {
	if os.Getenv("FLX_TEST_MACHINE") == "" {
		t.Skip("boots virtual machines: make test-kernel PART=boot")
	}
	w := newWorld(t)
	a := w.start(t, w.api, time.Second)
	a.Begin(t, policyOf(t, "in", in))
	eventually.True(t, "recorded", func() bool { return w.record().Confirmed != nil })
	record, err := os.ReadFile(filepath.Join(w.dir, boot.RecordFile))
	if err != nil {
		t.Fatal(err)
	}
	m := newMachine(t)
	damaged := record[:len(record)/2]
	const failed = "felixlike-hosts.service"
	for _, c := range []struct {
		name             string
		record, previous []byte
		said             string
		failed           string
	}{
		{"record", record, nil, "the policies of this node that were confirmed last are in force: 1", ""},
		{"damaged", damaged, record, "from the record before the last one, which cannot be read", ""},
		{"both damaged", damaged, damaged, "unexpected end of JSON input", failed},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := m.boot(t, map[string][]byte{boot.RecordFile: c.record, boot.PreviousFile: c.previous})
			state, tables, ports := "running", "inet filter inet felixlike-hosts", "served,served,,"
			if c.failed != "" {
				state, tables, ports = "degraded", "inet filter", "served,served,served,served"
			}
			for name, want := range map[string]string{"state": state, "default": "active", "failed": c.failed, "tables": tables} {
				if got := f.text(name); got != want {
					t.Errorf("%s: %q, want %q", name, got, want)
				}
			}
			if got := strings.Join(f["port-22"], ",") + "," + strings.Join(f["port-80"], ","); got != ports {
				t.Errorf("ports 22 and 80, both families: %q, want %q", got, ports)
			}
			if !strings.Contains(f.text("said"), c.said) {
				t.Errorf("the unit says %q, want %q", f.text("said"), c.said)
			}
			if c.failed == "" {
				f.inOrder(t, "nftables.service active", "felixlike-hosts.service start", "felixlike-hosts.service active", "network-pre.target active", "test-network.service start", "network.target active")
			}
			if t.Failed() {
				t.Logf("%v", f)
			}
		})
	}
}

// machine has what a machine needs to boot.
type machine struct{ dir string }

func newMachine(t *testing.T) machine {
	t.Helper()
	m := machine{t.TempDir()}
	for to, name := range map[string]string{"": "felixlike-agent", "plugins/bin": "felixlike-cni"} {
		c := exec.Command("go", "build", "-o", filepath.Join(m.dir, to)+"/", "../../cmd/"+name)
		if out, err := c.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	m.write(t, "conflist", []byte(`{"cniVersion": "1.0.0", "name": "felixlike", "plugins": [{"type": "felixlike-cni"}]}`))
	return m
}

func (m machine) write(t *testing.T, name string, data []byte) {
	t.Helper()
	path := filepath.Join(m.dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
}

// facts are what a machine has printed, by name.
type facts map[string][]string

func (f facts) text(name string) string { return strings.Join(f[name], "\n") }

// boot boots the machine with the files of state, nil for those that are not there, and returns what it prints when its boot is over.
func (m machine) boot(t *testing.T, state map[string][]byte) facts {
	t.Helper()
	if err := os.RemoveAll(filepath.Join(m.dir, "state")); err != nil {
		t.Fatal(err)
	}
	for name, data := range state {
		if data != nil {
			m.write(t, filepath.Join("state", name), data)
		}
	}
	program, err := filepath.Abs("testdata/machine")
	if err != nil {
		t.Fatal(err)
	}
	run, err := filepath.Abs("../../test/vm/run")
	if err != nil {
		t.Fatal(err)
	}
	c := exec.Command(run, "-p", "-t", "600", "-o", t.TempDir(), program, "boot", m.dir)
	c.Dir = m.dir // a folder below /tmp that the machine has
	out, err := c.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	f := facts{}
	for _, line := range regexp.MustCompile(`(?m)^FACT (\S+) ?(.*)$`).FindAllStringSubmatch(string(out), -1) {
		f[line[1]] = append(f[line[1]], strings.TrimSpace(line[2]))
	}
	if len(f["port-80"]) != 2 || !strings.Contains(f.text("installer"), "unit felixlike-hosts.service: installed") {
		t.Fatalf("the machine prints\n%s", out)
	}
	return f
}

// inOrder checks the order of moments, "UNIT start" or "UNIT active".
func (f facts) inOrder(t *testing.T, moments ...string) {
	t.Helper()
	last := uint64(0)
	var order []string
	for _, moment := range moments {
		unit, what, _ := strings.Cut(moment, " ")
		property := map[string]string{"start": "ExecMainStart", "active": "ActiveEnter"}[what] + "TimestampMonotonic="
		_, after, _ := strings.Cut(f.text(unit), property)
		digits, _, _ := strings.Cut(after, " ")
		at, err := strconv.ParseUint(digits, 10, 64)
		order = append(order, fmt.Sprintf("%s %d us", moment, at))
		if err != nil || at == 0 || at < last {
			t.Errorf("%s is not after the moments before it: %s", moment, strings.Join(order, ", "))
		}
		last = at
	}
}
