package uplink

import (
	"errors"
	"fmt"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
)

// TestOthersChangeAddressesMeanwhile lists the addresses and routes of an interface while
// another program changes those of another one, and the kernel interrupts the lists.
func TestOthersChangeAddressesMeanwhile(t *testing.T) {
	inNamespace(t)
	ip(t, "link add others type veth peer name othersx")
	others, err := netlink.LinkByName("others")
	if err != nil {
		t.Fatal(err)
	}
	up, err := netlink.LinkByName("up0")
	if err != nil {
		t.Fatal(err)
	}
	at := func(i int) *netlink.Addr {
		return &netlink.Addr{IPNet: &net.IPNet{IP: net.IPv4(10, 99, byte(i>>8), byte(i)), Mask: net.CIDRMask(32, 32)}}
	}
	for i := range 500 {
		if err := netlink.AddrAdd(others, at(i)); err != nil {
			t.Fatal(err)
		}
	}
	ns, err := netns.Get()
	if err != nil {
		t.Fatal(err)
	}
	defer ns.Close()
	inside, err := netlink.NewHandleAt(ns)
	if err != nil {
		t.Fatal(err)
	}
	defer inside.Close()
	end := make(chan struct{})
	var changes sync.WaitGroup
	changes.Go(func() {
		// Without a pace, two idle processors can run in step: then each list is interrupted.
		pace := time.NewTicker(2 * time.Millisecond)
		defer pace.Stop()
		for {
			select {
			case <-end:
				return
			case <-pace.C:
			}
			if err := errors.Join(inside.AddrAdd(others, at(1000)), inside.AddrDel(others, at(1000))); err != nil {
				t.Error(err)
				return
			}
		}
	})
	defer changes.Wait()
	defer close(end)
	interrupted, lists := 0, 0
	// Nothing interrupts a list while the other thread does not run.
	for end := time.Now().Add(30 * time.Second); interrupted < 20 && time.Now().Before(end); lists++ {
		if _, err := netlink.AddrList(up, netlink.FAMILY_V4); errors.Is(err, netlink.ErrDumpInterrupted) {
			interrupted++
		} else if err != nil {
			t.Fatal(err)
		}
		found, err := addresses(up, netlink.FAMILY_V4)
		if err == nil && len(found) != 1 {
			err = fmt.Errorf("addresses %v", found)
		}
		if err != nil {
			t.Fatal(err)
		}
		if _, err := routes(up, netlink.FAMILY_V4); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("the kernel interrupted %d of %d lists", interrupted, lists)
	if interrupted == 0 {
		t.Error("no list was interrupted: nothing is tested")
	}
}
