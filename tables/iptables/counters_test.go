package iptables

import "testing"

func TestCounted(t *testing.T) {
	for line, want := range map[string]string{
		`[12:720] -A flx-pin-x -p tcp -m comment --comment "flx:abcdefghijklmn" -m comment --comment "shop/db ingress[0]" -j ACCEPT`: "shop/db ingress[0]",
		`[0:0] -A flx-pin-x -m comment --comment "flx:abcdefghijklmn" -j DROP`:                                                       "",
		`[1:2] -A FORWARD -m comment --comment "of others" -j ACCEPT`:                                                                "",
		`-A flx-pin-x -m comment --comment "flx:abcdefghijklmn" -m comment --comment "shop/db ingress[0]" -j ACCEPT`:                 "",
		`[x:y] -A a -m comment --comment "flx:a b"`:                                                                                  "",
		":flx-pin-x - [0:0]": "",
	} {
		packets, comment, ok := counted(line)
		if ok != (want != "") || ok && (comment != want || packets != 12) {
			t.Errorf("%s: %d %q %v", line, packets, comment, ok)
		}
	}
}
