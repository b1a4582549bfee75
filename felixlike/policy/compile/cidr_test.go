package compile

import "testing"

// TestParseCIDR: prefixes are read as an API server reads them, which accepts and stores leading zeros.
func TestParseCIDR(t *testing.T) {
	for text, want := range map[string]string{
		"10.1.0.0/16": "10.1.0.0/16", "10.1.2.3/16": "10.1.0.0/16", "10.001.0.0/16": "10.1.0.0/16", "010.0.0.0/8": "10.0.0.0/8", "10.0.0.0/08": "10.0.0.0/8",
		"fd00::1/64": "fd00::/64", "fd00::/064": "fd00::/64",
		"10.0.0.0/33": "", "10.0.0/8": "", "": "", "::ffff:10.0.0.0/104": "", "::ffff:010.0.0.0/104": "",
	} {
		got, err := ParseCIDR(text)
		if want == "" && err == nil || want != "" && (err != nil || got.String() != want) {
			t.Errorf("%q: %v, %v; want %q", text, got, err, want)
		}
	}
}
