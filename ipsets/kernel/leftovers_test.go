package kernel

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/felixlike/felixlike/model"
)

// After a crash the driver completes half a load, and removes the new content of a set
// that was not swapped in, and the old content of one that was.
func TestLeftoversOfACrash(t *testing.T) {
	ns := newNamespace(t)
	temporary := temporaryName("flx-aweb-4")
	ns.feed(t, fmt.Sprintf("create flx-aweb-4 hash:ip maxelem 2\nadd flx-aweb-4 10.0.0.1\ncreate %s hash:net\nadd %[1]s 10.0.0.0/8\ncreate flx-%s hash:net\ncreate flx-old hash:net family inet6\n",
		temporary, strings.Repeat("z", 27)), "ipset", "restore")
	s := ns.open(t)
	loadExample(s)
	apply(t, s)
	ns.want(t, savedExample)
	wantSilent(t, s)
	// Another program has taken the name of the temporary set meanwhile.
	ns.run(t, "ipset", "create", temporary, "hash:net")
	s.capacity = 1
	s.AddMembers("aweb-4", members("10.0.0.3"))
	s.observed["flx-aweb-4"] = observedSet{kind: model.Addresses, family: model.IPv4, capacity: 3, plain: true}
	if r := apply(t, s); len(r.Refused) != 0 {
		t.Errorf("%+v", r)
	}
	ns.want(t, saved(addresses4, "10.0.0.1", "10.0.0.2", "10.0.0.3", "255.255.255.255"), savedExample[4:])
	wantSilent(t, s)
}

// While another driver keeps the sets, an apply leaves existing sets as they are,
// creates missing ones and destroys nothing. Afterwards the kernel has the desired
// state, and no foreign change is reported.
func TestKeptByOthers(t *testing.T) {
	ns := newNamespace(t)
	other := ns.open(t)
	other.CreateSet(addresses4)
	other.AddMembers(addresses4.Name, members("10.0.0.1", "10.0.0.2"))
	apply(t, other)

	s := ns.open(t)
	s.KeptByOthers(true)
	s.CreateSet(addresses4)
	s.AddMembers(addresses4.Name, members("10.0.0.1"))
	s.CreateSet(networks4)
	s.AddMembers(networks4.Name, members("10.1.0.0/16"))
	want := slices.Concat(saved(addresses4, "10.0.0.1", "10.0.0.2"), saved(networks4, "10.1.0.0/16"))
	slices.Sort(want)
	apply(t, s)
	ns.want(t, want)
	s.AddMembers(addresses4.Name, members("10.0.0.3"))
	s.Invalidate()
	apply(t, s)
	s.RemoveSet(networks4.Name)
	wantSilent(t, s)
	ns.want(t, want)

	s.KeptByOthers(false)
	if r := apply(t, s); !r.FullRead || len(r.Repaired) != 0 {
		t.Errorf("when the other driver is gone: %+v", r)
	}
	ns.want(t, saved(addresses4, "10.0.0.1", "10.0.0.3"))
	wantSilent(t, s)
}
