package confdir

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestChained: the copy has the other CNI's plugins, its name, and felixlike-cni behind them.
func TestChained(t *testing.T) {
	for _, c := range []struct{ file, text, want, err string }{
		{
			"10-own.conflist", `{"cniVersion":"1.0.0","name":"own","plugins":[{"type":"bridge","mtu":1400},{"type":"portmap"}]}`,
			`own: {"macspoofchk":true,"mtu":1400,"type":"bridge"} {"type":"portmap"} {"type":"felixlike-cni"}`, "",
		},
		{"10-own.conflist", `{"cniVersion":"1.0.0","name":"own","plugins":[{"type":"bridge","macspoofchk":false}]}`, `own: {"macspoofchk":false,"type":"bridge"} {"type":"felixlike-cni"}`, ""},
		{"10-flannel.conflist", `{"cniVersion":"1.0.0","name":"cbr0","plugins":[{"type":"flannel","delegate":{"hairpinMode":true}}]}`, `cbr0: {"delegate":{"hairpinMode":true,"macspoofchk":true,"type":"bridge"},"type":"flannel"} {"type":"felixlike-cni"}`, ""},
		{"10-one.conf", `{"cniVersion":"0.4.0","name":"one","type":"ptp"}`, `one: {"cniVersion":"0.4.0","name":"one","type":"ptp"} {"type":"felixlike-cni"}`, ""},
		{"10-own.conflist", `{"cniVersion":"1.0.0","plugins":[{"type":"ptp"}]}`, "", "10-own.conflist"},
		{"10-own.conflist", `{`, "", "10-own.conflist: unexpected end"},
		{"README", `{}`, "", "install that CNI first"},
	} {
		dir := t.TempDir()
		for name, text := range map[string]string{c.file: c.text, "20-other.conflist": "", Own: `{"plugins":[{"type":"felixlike-cni"}]}`} {
			if name == "20-other.conflist" && c.file == "README" {
				continue
			}
			if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		text, err := Chained(dir, Own)
		if c.err != "" {
			if err == nil || !strings.Contains(err.Error(), c.err) {
				t.Errorf("%s %s: error %v, want %q", c.file, c.text, err, c.err)
			}
			continue
		}
		var list struct {
			Name    string            `json:"name"`
			Plugins []json.RawMessage `json:"plugins"`
		}
		if err == nil {
			err = json.Unmarshal(text, &list)
		}
		got := list.Name + ":"
		for _, p := range list.Plugins {
			var settings map[string]any
			_ = json.Unmarshal(p, &settings)
			sorted, _ := json.Marshal(settings)
			got += fmt.Sprintf(" %s", sorted)
		}
		if err != nil || got != c.want {
			t.Errorf("%s %s: %s %v\nwant %s", c.file, c.text, got, err, c.want)
		}
	}
}

// TestChainedIsOutdated: a change of the other CNI's configuration is a problem until the copy is made anew.
func TestChainedIsOutdated(t *testing.T) {
	dir := t.TempDir()
	write := func(name string, text []byte) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	other := func(mtu int) {
		write("10-own.conflist", fmt.Appendf(nil, `{"cniVersion":"1.0.0","name":"own","plugins":[{"type":"ptp","mtu":%d}]}`, mtu))
	}
	w := NewWatcher(Options{Dir: dir, Own: Own, Chained: true, Log: slog.New(slog.DiscardHandler)})
	copied := func() {
		t.Helper()
		text, err := Chained(dir, Own)
		if err != nil {
			t.Fatal(err)
		}
		write(Own, text)
	}
	for _, c := range []struct {
		do      func()
		problem string
	}{
		{func() { other(1400); copied() }, ""},
		{func() { other(1300) }, "has changed since 05-felixlike.conflist was made of it"},
		{copied, ""},
		{func() { write("00-own.conf", []byte("{}")) }, "container runtimes take network configuration 00-own.conf"},
		{func() {
			_ = os.Remove(filepath.Join(dir, "00-own.conf"))
			_ = os.Remove(filepath.Join(dir, "10-own.conflist"))
		}, "install that CNI first"},
	} {
		c.do()
		w.look()
		if got := w.Problem(); (c.problem == "") != (got == "") || !strings.Contains(got, c.problem) {
			t.Errorf("problem %q, want %q", got, c.problem)
		}
	}
}
