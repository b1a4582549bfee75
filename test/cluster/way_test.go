package cluster

import (
	"errors"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/felixlike/felixlike/model"
)

// Times for connections: the kernel sends a SYN again after a second. One that has gone
// through before has patience: on a busy machine an answer is late, and policy denies a
// connection every time.
const (
	throughTime = 4 * time.Second
	patience    = 15 * time.Second
	deniedTime  = 1200 * time.Millisecond
)

// try opens the connection of a way and reads the source that the server sees.
func (w *world) try(way way, f model.Family) error {
	timeout := throughTime
	if way.sees == "" {
		timeout = deniedTime
	}
	_, source, err := visit(w.ends[way.from], w.target(way.to, f), timeout)
	switch {
	case way.sees == "" && err == nil:
		return fmt.Errorf("got through, and was seen as %s", w.name(source))
	case way.sees == "":
		return nil
	case err != nil:
		return err
	case way.sees != "?" && source != w.addresses[way.sees][f]:
		return fmt.Errorf("was seen as %s, wanted %s", w.name(source), way.sees)
	}
	return nil
}

// name returns an address with the name it has in the test.
func (w *world) name(a netip.Addr) string {
	for name, all := range w.addresses {
		if all[model.FamilyOf(a)] == a {
			return fmt.Sprintf("%s (%s)", name, a)
		}
	}
	return a.String()
}

// testAffinity has one client reach both servers of a Service, but only one where
// the Service asks for affinity.
func (w *world) testAffinity(t *testing.T) {
	w.kubectl(t, "-n", "services", "delete", "networkpolicy", "--all")
	for _, f := range model.Families() {
		until(t, 30*time.Second, func() error {
			servers, err := w.servers("web", f)
			if err == nil && len(servers) != 2 {
				err = fmt.Errorf("of two servers only %v answered", servers)
			}
			return err
		})
		until(t, 30*time.Second, func() error {
			servers, err := w.servers("sticky", f)
			if err == nil && len(servers) != 1 {
				err = fmt.Errorf("IPv%s: with session affinity %v answered", f, servers)
			}
			return err
		})
	}
}

// servers counts the servers that answer twenty connections of c1.
func (w *world) servers(service string, f model.Family) (map[string]int, error) {
	servers := map[string]int{}
	for range 20 {
		server, _, err := visit(w.ends["c1"], w.target(service, f), throughTime)
		if err != nil {
			return servers, err
		}
		servers[server]++
	}
	return servers, nil
}

// orNothing keeps a list of errors readable.
func orNothing(err error) error {
	if err == nil {
		return errors.New("")
	}
	return err
}
