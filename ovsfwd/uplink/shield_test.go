package uplink

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// shielded reports whether the shield of an interface is up.
func shielded(t *testing.T, name string) bool {
	t.Helper()
	out, err := exec.Command("nft", "list", "table", "inet", shieldTable).CombinedOutput()
	if err != nil && !strings.Contains(string(out), "No such file or directory") {
		t.Fatalf("list the shield: %v: %s", err, out)
	}
	return err == nil && strings.Contains(string(out), `iifname "`+name+`" meta l4proto != tcp`)
}

// TestShieldWithManyDescriptors: select(2) knows no descriptors above 1,023.
func TestShieldWithManyDescriptors(t *testing.T) {
	inNamespace(t)
	const many = 5000
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil || limit.Cur < many+100 {
		t.Skipf("%d open files are allowed (%v)", limit.Cur, err)
	}
	for range many {
		fd, err := unix.Open("/dev/null", unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = unix.Close(fd) })
	}
	for range 2 {
		if err := shield("up0"); err != nil {
			t.Fatal(err)
		}
	}
	if !shielded(t, "up0") {
		t.Error("there is no shield")
	}
	if err := Unshield(); err != nil {
		t.Fatal(err)
	}
	if shielded(t, "up0") {
		t.Error("the shield was not taken away")
	}
}

// TestShield: no datagram comes to the host by the uplink, and TCP does, since the
// switch may be unable to hand it over.
func TestShield(t *testing.T) {
	inNamespace(t)
	far := fmt.Sprintf("flx-shield-%d", os.Getpid())
	ip(t, "netns add "+far)
	t.Cleanup(func() { ip(t, "netns del "+far) })
	for _, line := range []string{
		"link set far0 netns " + far, "-n " + far + " link set far0 up", "-n " + far + " addr add 192.168.77.1/24 dev far0",
	} {
		ip(t, line)
	}
	// The namespace is the thread's: the sockets have to be made here.
	tcp, err := net.ListenTCP("tcp4", &net.TCPAddr{IP: net.IPv4(192, 168, 77, 100), Port: 7779})
	if err != nil {
		t.Fatal(err)
	}
	defer tcp.Close()
	udp, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(192, 168, 77, 100), Port: 7779})
	if err != nil {
		t.Fatal(err)
	}
	defer udp.Close()
	send := func(protocol string) {
		t.Helper()
		command := "timeout 5 bash -c 'echo x > /dev/" + protocol + "/192.168.77.100/7779'"
		if out, err := exec.Command("ip", "netns", "exec", far, "sh", "-c", command).CombinedOutput(); err != nil {
			t.Fatalf("%s: %v: %s", protocol, err, out)
		}
	}
	arrived := func(wait time.Duration) bool {
		t.Helper()
		if err := udp.SetReadDeadline(time.Now().Add(wait)); err != nil {
			t.Fatal(err)
		}
		_, err := udp.Read(make([]byte, 2))
		if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatal(err)
		}
		return err == nil
	}
	if send("udp"); !arrived(5 * time.Second) {
		t.Fatal("no datagram comes without a shield")
	}
	for range 2 { // one rule, however often
		if err := shield("up0"); err != nil {
			t.Fatal(err)
		}
	}
	send("tcp")
	if send("udp"); arrived(100 * time.Millisecond) {
		t.Error("a datagram comes in spite of the shield")
	}
	if err := Unshield(); err != nil {
		t.Fatal(err)
	}
	if send("udp"); !arrived(5 * time.Second) {
		t.Error("no datagram comes after the shield was taken away")
	}
}
