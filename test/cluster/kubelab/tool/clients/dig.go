package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"time"

	"golang.org/x/net/dns/dnsmessage"
)

// kinds are the types of records that dig knows.
var kinds = map[string]dnsmessage.Type{
	"A": dnsmessage.TypeA, "AAAA": dnsmessage.TypeAAAA, "CNAME": dnsmessage.TypeCNAME, "PTR": dnsmessage.TypePTR, "SRV": dnsmessage.TypeSRV,
}

// dig asks the first name server of /etc/resolv.conf for a name, and prints the records of the answer: dig [+tcp] [+search] [+short] NAME [TYPE].
func dig(args []string) int {
	network, kind, name, search, short := "udp", dnsmessage.TypeA, "", false, false
	for _, a := range args {
		switch {
		case a == "+tcp":
			network = "tcp"
		case a == "+search":
			search = true
		case a == "+short":
			short = true
		case strings.HasPrefix(a, "+"):
		case name != "" && kinds[a] != 0:
			kind = kinds[a]
		default:
			name = a
		}
	}
	server, domains, err := resolver()
	if err != nil {
		return fail("dig", 9, err)
	}
	names := []string{name}
	if search && !strings.HasSuffix(name, ".") {
		names = nil
		for _, d := range domains {
			names = append(names, name+"."+d)
		}
		names = append(names, name)
	}
	for _, n := range names {
		records, err := ask(network, server, strings.TrimSuffix(n, ".")+".", kind)
		if err != nil {
			return fail("dig", 9, err)
		}
		for _, r := range records {
			if short {
				fmt.Println(value(r))
			} else {
				fmt.Printf("%s\t%d\tIN\t%s\t%s\n", r.Header.Name, r.Header.TTL, strings.TrimPrefix(r.Header.Type.String(), "Type"), value(r))
			}
		}
		if len(records) > 0 {
			return 0
		}
	}
	return 0
}

// resolver returns the first name server and the search list of /etc/resolv.conf.
func resolver() (server string, domains []string, err error) {
	text, err := os.ReadFile("/etc/resolv.conf")
	if err != nil {
		return "", nil, err
	}
	for line := range strings.Lines(string(text)) {
		words := strings.Fields(line)
		switch {
		case len(words) > 1 && words[0] == "nameserver" && server == "":
			server = net.JoinHostPort(words[1], "53")
		case len(words) > 1 && words[0] == "search":
			domains = words[1:]
		}
	}
	if server == "" {
		return "", nil, errors.New("no name server in /etc/resolv.conf")
	}
	return server, domains, nil
}

// ask returns the records of a server's answer.
func ask(network, server, name string, kind dnsmessage.Type) ([]dnsmessage.Resource, error) {
	n, err := dnsmessage.NewName(name)
	if err != nil {
		return nil, err
	}
	query := dnsmessage.Message{
		Header:    dnsmessage.Header{ID: 1, RecursionDesired: true},
		Questions: []dnsmessage.Question{{Name: n, Type: kind, Class: dnsmessage.ClassINET}},
	}
	packet, err := query.Pack()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	conn, err := (&net.Dialer{}).DialContext(ctx, network, server)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	deadline, _ := ctx.Deadline()
	if err := conn.SetDeadline(deadline); err != nil {
		return nil, err
	}
	if network == "tcp" {
		packet = append(binary.BigEndian.AppendUint16(nil, uint16(len(packet))), packet...)
	}
	if _, err := conn.Write(packet); err != nil {
		return nil, err
	}
	answer := make([]byte, 1<<16)
	size := 0
	if network == "tcp" {
		var length uint16
		if err := binary.Read(conn, binary.BigEndian, &length); err != nil {
			return nil, err
		}
		size, err = io.ReadFull(conn, answer[:length])
	} else {
		size, err = conn.Read(answer)
	}
	if err != nil {
		return nil, err
	}
	var m dnsmessage.Message
	if err := m.Unpack(answer[:size]); err != nil {
		return nil, err
	}
	return m.Answers, nil
}

// value returns what dig prints of a record.
func value(r dnsmessage.Resource) string {
	switch b := r.Body.(type) {
	case *dnsmessage.AResource:
		return net.IP(b.A[:]).String()
	case *dnsmessage.AAAAResource:
		return net.IP(b.AAAA[:]).String()
	case *dnsmessage.CNAMEResource:
		return b.CNAME.String()
	case *dnsmessage.PTRResource:
		return b.PTR.String()
	case *dnsmessage.SRVResource:
		return fmt.Sprintf("%d %d %d %s", b.Priority, b.Weight, b.Port, b.Target)
	}
	return ""
}
