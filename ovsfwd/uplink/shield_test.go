package uplink

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"testing"
	"time"
)

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
	heard := func(wait time.Duration) bool {
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
	if send("udp"); !heard(5 * time.Second) {
		t.Fatal("no datagram comes without a shield")
	}
	for range 2 { // one rule, however often
		if err := shield("up0"); err != nil {
			t.Fatal(err)
		}
	}
	send("tcp")
	if send("udp"); heard(100 * time.Millisecond) {
		t.Error("a datagram comes in spite of the shield")
	}
	if err := Unshield(); err != nil {
		t.Fatal(err)
	}
	if send("udp"); !heard(5 * time.Second) {
		t.Error("no datagram comes after the shield was taken away")
	}
}
