package iptables

import "testing"

func TestCounted(t *testing.T) {
	for line, want := range map[string]string{
		`[12:720] -A flx-pin-x -p tcp -m comment --comment "flx:abcdefghijklmn" -m comment --comment "shop/db ingress[0]" -j ACCEPT`: "pin-x abcdefghijklmn",
		`[12:0] -A flx-pin-x -m comment --comment "flx:abcdefghijklmn" -j DROP`:                                                      "pin-x abcdefghijklmn",
		`[1:2] -A FORWARD -m comment --comment "of others" -j ACCEPT`:                                                                "",
		`[1:2] -A flx-pin-x -m comment --comment "of others" -j ACCEPT`:                                                              "",
		`-A flx-pin-x -m comment --comment "flx:abcdefghijklmn" -m comment --comment "shop/db ingress[0]" -j ACCEPT`:                 "",
		`[x:y] -A flx-a -m comment --comment "flx:a"`:                                                                                "",
		":flx-pin-x - [0:0]": "",
	} {
		chain, hash, packets, ok := counted(line)
		if ok != (want != "") || ok && (chain+" "+hash != want || packets != 12) {
			t.Errorf("%s: %s %s %d %v", line, chain, hash, packets, ok)
		}
	}
}
