package ovsdb

import (
	"reflect"
	"testing"
)

// FuzzRecord reads an attachment from any external_ids, which other programs can write. What is read in full can be
// written, and is then read the same.
func FuzzRecord(f *testing.F) {
	f.Add("x", "a", "02:00:00:00:00:01", "10.0.0.1,fd00::1", "sandbox", "eth0", "/run/netns/a", 3)
	f.Add("", "", "", "", "", "", "", 0)
	f.Add("x", "a", "02:00:00:00:00", ",,", "", "", "", -1)
	f.Add("x", "a", "02:00:00:00:00:01", "10.0.0.1,fe80::1%eth0", "", "", "", 1<<33)
	f.Fuzz(func(t *testing.T, namespace, pod, mac, addresses, sandbox, inside, netns string, ofport int) {
		row := &interfaceRow{Name: "fx-1", OFPort: &ofport, ExternalIDs: map[string]string{
			keyPodNamespace: namespace, keyPodName: pod, keyMAC: mac, keyAddresses: addresses, keySandbox: sandbox,
			keyPodInterface: inside, keyNetNS: netns,
		}}
		a, err := recordOf(row)
		if _, errAttached := attachmentOf(row); err != nil || errAttached != nil {
			return
		}
		row.ExternalIDs = record(*a)
		again, err := recordOf(row)
		if err != nil || !reflect.DeepEqual(a, again) {
			t.Fatalf("%+v is read as %+v, %v", a, again, err)
		}
	})
}
