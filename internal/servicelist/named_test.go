package servicelist

import "testing"

// TestNamed: names with dots of pods and nodes are no Services.
func TestNamed(t *testing.T) {
	for end, want := range map[string]string{
		"service:shop/db": "shop/db", "svc:shop/db": "shop/db", "db.shop.svc": "shop/db", "db.shop.svc.cluster.local.": "shop/db",
		"shop/web.v1.svc": "", "node:host.rack.svc.example.com": "", "db.shop": "", ".shop.svc": "", "fd00::1": "", "192.0.2.1": "",
	} {
		if got, found := Named(end); got != want || found != (want != "") {
			t.Errorf("%s: %q, %v; want %q", end, got, found, want)
		}
	}
}
