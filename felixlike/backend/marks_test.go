package backend

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/felixlike/felixlike/felixlike/control"
	"github.com/felixlike/felixlike/felixlike/denied"
	"github.com/felixlike/felixlike/internal/namespace"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/ovsfwd/conntrack"
	"github.com/felixlike/felixlike/rules"
	"github.com/felixlike/felixlike/tables/iptables"
	"github.com/felixlike/felixlike/test/lab/probe"
	"github.com/felixlike/felixlike/test/lab/traffic"
	"github.com/felixlike/felixlike/test/tablestest"
)

// A connection that policy let through goes on in both directions when policy
// changes; a new one does not come to be.
func TestAllowedConnectionsGoOn(t *testing.T) {
	for name, make := range firewalls() {
		t.Run(name, func(t *testing.T) {
			f := make(t)
			updates := closedPod("10.1.0.5", false)
			closed := updates[2].(model.EndpointUpdate)
			updates[2] = model.EndpointUpdate{Endpoint: &model.Endpoint{ID: closed.Endpoint.ID}}
			f.update(updates...)
			f.program(t)
			d := newDialogue(t, f.path, 4000)
			d.out(t, "open pod to outside", true)
			d.in(t, "its answer", true)
			f.update(closed)
			f.program(t)
			d.out(t, "closed pod to outside", true)
			d.in(t, "its answer", true)
			newDialogue(t, f.path, 4001).out(t, "another one", false)
		})
	}
}

// A pod's packet to a Service address that no proxy rewrites does not leave the node, and
// followers of denied packets get the reason. The path here has no proxy.
func TestUnclaimedServices(t *testing.T) {
	for name, firewallOf := range firewalls() {
		t.Run(name, func(t *testing.T) {
			f := firewallOf(t)
			updates := closedPod("10.1.0.5", false)
			updates[2] = model.EndpointUpdate{Endpoint: &model.Endpoint{ID: updates[2].(model.EndpointUpdate).Endpoint.ID}}
			f.update(updates...)
			f.program(t)
			newDialogue(t, f.path, 4000).out(t, "to an address outside", true)
			f.update(model.ServiceCIDRsUpdate{Prefixes: []netip.Prefix{netip.MustParsePrefix("10.2.0.0/24"), netip.MustParsePrefix("fd00::/108")}})
			f.program(t)
			newDialogue(t, f.path, 4001).out(t, "to an address of Services", false)
			reports := make(chan denied.Report, 16)
			ctx, cancel := context.WithCancel(t.Context())
			ended, err := denied.ListenNFLOG(ctx, f.path.Router.FD, rules.ReportGroup, func(r denied.Report) { reports <- r })
			if err != nil {
				t.Fatal(err)
			}
			f.update(model.DenialsUpdate{Reported: true})
			f.program(t)
			newDialogue(t, f.path, 4004).out(t, "to an address of Services, followed", false)
			drop, err := (&denied.View{}).Drop(<-reports)
			if err != nil || drop.By != control.ByNoService || drop.Direction != "egress" || drop.Port != 4004 {
				t.Errorf("reported %+v, %v", drop, err)
			}
			f.update(model.DenialsUpdate{})
			f.program(t)
			cancel()
			<-ended
			newDialogue(t, f.path, 4002).in(t, "from there", true)
			f.update(model.ServiceCIDRsUpdate{})
			f.program(t)
			newDialogue(t, f.path, 4003).out(t, "to an address outside again", true)
		})
	}
}

// Answers reach a pod to which no peer may open connections, also if another program sets
// marks without a mask.
func TestMarksOfOthers(t *testing.T) {
	for name, make := range firewalls() {
		t.Run(name, func(t *testing.T) {
			f := make(t)
			f.update(closedPod("10.1.0.5", true)...)
			f.program(t)
			f.path.Router.Run(t, f.shape...)
			d := newDialogue(t, f.path, 4000)
			d.in(t, "outside to closed pod", false)
			d = newDialogue(t, f.path, 4001)
			d.out(t, "pod to outside", true)
			d.in(t, "its answer", true)
		})
	}
}

// A connection that began without any rules is judged by the policy of its first packet's
// direction: policy allows a packet in the other direction as if it began a connection, but
// such an answer does not mark the connection as allowed.
func TestAnswersDoNotAllowConnections(t *testing.T) {
	for name, make := range firewalls() {
		t.Run(name, func(t *testing.T) {
			f := make(t)
			f.update(closedPod("10.1.0.5", false)...)
			f.program(t)
			d := newDialogue(t, f.path, 4000)
			d.out(t, "closed pod to outside", false)
			f.path.Router.Run(t, f.flush...)
			d.out(t, "without policy", true)
			d.in(t, "its answer", true)
			f.program(t)
			d.in(t, "another answer", true)
			d.out(t, "closed pod to outside, after an answer", false)
		})
	}
}

// The same where no other program has a rule that asks for connections, and the server
// takes its time: without a hold, its late answer is the first packet that is tracked.
func TestLateAnswersDoNotAllowConnections(t *testing.T) {
	for name, firewallOf := range firewalls() {
		for _, inbound := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/inbound=%v", name, inbound), func(t *testing.T) {
				f := firewallOf(t)
				f.path.Router.Run(t, "nft", "delete", "table", "inet", "other")
				hold, err := conntrack.HoldTracking(f.path.Router.FD)
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { _ = hold.Close() })
				f.update(closedPod("10.1.0.5", inbound)...)
				f.program(t)
				d := newDialogue(t, f.path, 4000)
				ask, answer := d.out, d.in
				if inbound {
					ask, answer = d.in, d.out
				}
				ask(t, "denied client", false)
				f.path.Router.Run(t, f.flush...)
				f.path.Router.Run(t, "nft", "flush", "ruleset")
				ask(t, "denied client, without policy", true)
				f.program(t)
				answer(t, "late answer", true)
				ask(t, "denied client, after a late answer", false)
				answer(t, "another answer", true)
				ask(t, "denied client, after another answer", false)
			})
		}
	}
}

// A connection that no rule has judged is not marked as allowed, also while only the rules
// that judge are missing.
func TestWhatIsNotJudgedIsNotAllowed(t *testing.T) {
	for name, make := range firewalls() {
		t.Run(name, func(t *testing.T) {
			f := make(t)
			f.update(closedPod("10.1.0.5", false)...)
			f.program(t)
			d := newDialogue(t, f.path, 4000)
			d.out(t, "closed pod to outside", false)
			f.path.Router.Run(t, f.open...)
			d.out(t, "without policy", true)
			d.in(t, "its answer", true)
			f.program(t)
			d.out(t, "closed pod to outside, after the repair", false)
		})
	}
}

// rejectingPod makes a pod with the address that may send nothing, and gets an answer.
func rejectingPod(address string) []model.Update {
	updates := closedPod(address, false)
	id := model.PolicyID{Tier: model.TierAdmin, Name: "reject"}
	updates[1] = model.PolicyUpdate{Policy: &model.Policy{ID: id, Egress: []model.Rule{{Action: model.Reject, AnyPeer: true, AnyPort: true}}}}
	e := updates[2].(model.EndpointUpdate).Endpoint
	e.Egress = model.Applied{Admin: []model.PolicyID{id}}
	return updates
}

// eachIPTables runs a test on each variant of iptables, with the chains of both tables and a
// pod that may do all.
func eachIPTables(t *testing.T, test func(t *testing.T, f *firewall, tool string)) {
	for _, v := range []iptables.Variant{iptables.Legacy, iptables.NFT} {
		t.Run(v.String(), func(t *testing.T) {
			f := newIPTablesFirewall(t, v)
			updates := closedPod("10.1.0.5", false)
			updates[2].(model.EndpointUpdate).Endpoint.Egress = model.Applied{}
			f.update(updates...)
			f.pass()
			f.program(t)
			test(t, f, "iptables-"+v.String())
		})
	}
}

// Allowed packets pass, also if another program has set the mark of rejected packets before.
func TestForeignMarkOfRejectedPackets(t *testing.T) {
	eachIPTables(t, func(t *testing.T, f *firewall, tool string) {
		before := newDialogue(t, f.path, 4000)
		before.out(t, "pod to outside", true)
		f.path.Router.Run(t, tool, "-t", "mangle", "-I", "PREROUTING", "-j", "MARK", "--or-mark", fmt.Sprint(rules.MarkRejected))
		before.out(t, "pod to outside, marked", true)
		before.in(t, "the answer, marked", true)
		d := newDialogue(t, f.path, 4001)
		d.out(t, "another one from the pod, marked", true)
		d.in(t, "its answer, marked", true)
		newDialogue(t, f.path, 4002).in(t, "one to the pod, marked", true)
	})
}

// A SYN that policy rejects does not pass because conntrack takes it for a packet of an allowed
// connection: not even if another program overwrites the mark of rejected packets.
func TestRejectedSYNOfAnAllowedConnection(t *testing.T) {
	eachIPTables(t, func(t *testing.T, f *firewall, _ string) {
		server := f.path.Receiver
		server.Feed(t, `table inet count { counter asked { }
			chain in { type filter hook input priority 0; tcp dport 80 tcp flags & (syn | ack) == syn counter name asked; }; }`, "nft", "-f", "-")
		asked := func() string { return server.Run(t, "nft", "list", "counter", "inet", "count", "asked") }
		from, to := netip.MustParseAddrPort("10.1.0.5:4000"), netip.MustParseAddrPort("10.2.0.9:80")
		station := probe.NewStation(open(t, server))
		t.Cleanup(func() { _ = station.Close() })
		if err := station.Serve(model.TCP, to); err != nil {
			t.Fatal(err)
		}
		client := open(t, f.path.Sender)
		c, err := traffic.ConnectFrom(client, from, to, patience)
		if err != nil {
			t.Fatal(err)
		}
		forget(t, c)
		once := asked()
		if !strings.Contains(once, "packets 1 ") {
			t.Fatalf("the server has not counted the allowed connection: %s", once)
		}

		f.update(rejectingPod("10.1.0.5")...)
		f.program(t)
		f.path.Router.Feed(t, "table inet shaper { chain forward { type filter hook forward priority -10; meta mark set 5; }; }", "nft", "-f", "-")
		if entries := f.path.Router.Run(t, "conntrack", "-L", "-p", "tcp", "--dport", "80"); !strings.Contains(entries, "ESTABLISHED") {
			t.Fatalf("conntrack has seen the end of the connection: %s", entries)
		}
		if _, err := traffic.ConnectFrom(client, from, to, shortly); !errors.Is(err, unix.ETIMEDOUT) {
			t.Errorf("another connection from the port: %v, want no answer", err)
		}
		if now := asked(); now != once {
			t.Errorf("the server was asked again: %s", now)
		}
	})
}

func open(t *testing.T, ns tablestest.Namespace) *namespace.Namespace {
	t.Helper()
	n, err := namespace.Open(ns.Name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(n.Close)
	return n
}

// forget closes a TCP socket without a packet (TCP_REPAIR, tcp(7)).
func forget(t *testing.T, c *os.File) {
	t.Helper()
	raw, err := c.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	var refused error
	err = raw.Control(func(fd uintptr) { refused = unix.SetsockoptInt(int(fd), unix.SOL_TCP, unix.TCP_REPAIR, 1) })
	if err := errors.Join(err, refused, c.Close()); err != nil {
		t.Fatal(err)
	}
}
