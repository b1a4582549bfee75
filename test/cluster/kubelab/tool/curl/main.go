// Command curl is the little of curl that the upstream tests ask of their
// agnhost image: a GET of one URL, the body to stdout, and exit status 7
// (cannot connect), 28 (timed out) or 22 (-f and an HTTP error).
package main

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"
)

func main() {
	var url, local string
	var total, connect time.Duration
	var fail bool
	args := os.Args[1:]
	value := func(i *int) string {
		if *i++; *i < len(args) {
			return args[*i]
		}
		return ""
	}
	seconds := func(s string) time.Duration {
		f, _ := strconv.ParseFloat(s, 64)
		return time.Duration(f * float64(time.Second))
	}
	for i := 0; i < len(args); i++ {
		a := args[i]
		switch {
		case a == "--max-time" || a == "-m":
			total = seconds(value(&i))
		case a == "--connect-timeout":
			connect = seconds(value(&i))
		case a == "--interface" || a == "--local-port":
			local = value(&i)
		case a == "-o" || a == "-w" || a == "-H" || a == "-X":
			value(&i)
		case a == "-f" || a == "--fail":
			fail = true
		case strings.HasPrefix(a, "-"):
		default:
			url = a
		}
	}
	if !strings.Contains(url, "://") {
		url = "http://" + url
	}
	d := &net.Dialer{Timeout: connect}
	if ip := net.ParseIP(local); ip != nil {
		d.LocalAddr = &net.TCPAddr{IP: ip}
	}
	c := &http.Client{Timeout: total, Transport: &http.Transport{
		DialContext: d.DialContext, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true,
	}}
	resp, err := c.Get(url)
	if err == nil {
		defer resp.Body.Close()
		_, err = io.Copy(os.Stdout, resp.Body)
	}
	var ne net.Error
	switch {
	case err == nil && fail && resp.StatusCode >= 400:
		os.Exit(22)
	case err == nil:
	case errors.As(err, &ne) && ne.Timeout():
		fmt.Fprintln(os.Stderr, "curl: (28)", err)
		os.Exit(28)
	default:
		fmt.Fprintln(os.Stderr, "curl: (7)", err)
		os.Exit(7)
	}
}
