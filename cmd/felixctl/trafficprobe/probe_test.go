package trafficprobe

import (
	"bytes"
	"context"
	"encoding/json"
	"net"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestProbe sends over real sockets: to a server, to a port without one, and to a server that is
// silent.
func TestProbe(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	address, done := make(chan string, 1), make(chan error, 1)
	go func() {
		done <- serve(ctx, "pod-b", []string{"127.0.0.1:0"}, func(a net.Addr) { address <- a.String() })
	}()
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	nobody := taken.Addr().String()
	if err := taken.Close(); err != nil {
		t.Fatal(err)
	}
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	server := <-address
	paths := []Path{
		{Open: true, Address: server},
		{Address: server},
		{Address: nobody},
		{Open: true, Address: silent.Addr().String(), Silent: true},
		{Open: true, Address: "localhost", Lookup: true},
	}
	arg, err := json.Marshal(paths)
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	c := Command()
	c.SetArgs([]string{"send", string(arg)})
	c.SetOut(&out)
	if err := c.ExecuteContext(ctx); err != nil {
		t.Fatal(err)
	}
	var got []Result
	if err := json.Unmarshal(out.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	if len(got) == len(paths) && got[4].Open {
		got[4].Detail = "" // the machine's own addresses
	}
	want := []Result{
		{true, "answered by pod-b"},
		{true, "answered by pod-b"},
		{false, "connect: connection refused"},
		{true, "connected"},
		{true, ""},
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("results (-want +got):\n%s", d)
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}
