package config

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/spf13/pflag"
)

// FuzzFile has Load read any file, and any value of one environment variable. What it accepts is valid.
func FuzzFile(f *testing.F) {
	const head = "apiVersion: " + APIVersion + "\nkind: " + Kind + "\n"
	for _, text := range []string{
		"", "{", head, head + "backend: nftables\n", head + "backend: [nftables]\n", head + "iptables: {variant: nft}\n",
		head + "iptables: {variant: {nft: 1}}\n", head + "iptables.variant: nft\n", head + "mtu: 1e9\n", head + "mtu: -1\n",
		head + "serviceCIDRs: [10.0.0.0/8, fd00::/108]\n", head + "serviceCIDRs: 10.0.0.0/8\n", head + "resyncInterval: 1y\n",
		head + "backend: a\nbackend: b\n", head + "unknown: 1\n", "a: &a [*a]",
	} {
		f.Add([]byte(text), "")
		f.Add([]byte(text), "x")
	}
	f.Fuzz(func(t *testing.T, text []byte, value string) {
		file := filepath.Join(t.TempDir(), "agent.yaml")
		if err := os.WriteFile(file, text, 0o600); err != nil {
			t.Fatal(err)
		}
		flags := pflag.NewFlagSet("", pflag.ContinueOnError)
		AddFlags(flags)
		if err := flags.Set("config", file); err != nil {
			t.Fatal(err)
		}
		effective, err := Load(flags, []string{EnvName("mtu") + "=" + value})
		if err != nil {
			return
		}
		if err := effective.validate(); err != nil {
			t.Fatalf("%q is accepted: %v", text, err)
		}
	})
}
