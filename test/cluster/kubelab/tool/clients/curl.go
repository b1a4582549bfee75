package main

import (
	"cmp"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"os"
	"strconv"
	"strings"
	"time"
)

// request is what a command line of curl asks for.
type request struct {
	url, local, output, after string
	total, connect            time.Duration
	fail, head                bool
}

// parseCurl takes a command line of curl; options that change nothing here are passed over.
func parseCurl(args []string) request {
	r := request{}
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
		switch a := args[i]; a {
		case "--max-time", "-m":
			r.total = seconds(value(&i))
		case "--connect-timeout":
			r.connect = seconds(value(&i))
		case "--interface", "--local-port":
			r.local = value(&i)
		case "-o":
			r.output = value(&i)
		case "-w":
			r.after = value(&i)
		case "-H", "-X":
			value(&i)
		case "-f", "--fail":
			r.fail = true
		case "-i":
			r.head = true
		default:
			if !strings.HasPrefix(a, "-") {
				r.url = a
			}
		}
	}
	if !strings.Contains(r.url, "://") {
		r.url = "http://" + r.url
	}
	return r
}

// curl gets one URL. Its exit status is 7 (cannot connect), 28 (timed out) or 22 (-f and an HTTP error).
func curl(args []string) int {
	r := parseCurl(args)
	d := &net.Dialer{Timeout: r.connect}
	if ip := net.ParseIP(r.local); ip != nil {
		d.LocalAddr = &net.TCPAddr{IP: ip}
	}
	c := &http.Client{Timeout: r.total, Transport: &http.Transport{
		DialContext: d.DialContext, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true,
	}}
	resp, err := c.Get(r.url)
	if err == nil {
		defer resp.Body.Close()
		err = r.print(resp)
	}
	var ne net.Error
	switch {
	case err == nil && r.fail && resp.StatusCode >= 400:
		return 22
	case err == nil:
		return 0
	case errors.As(err, &ne) && ne.Timeout():
		return fail("curl", 28, err)
	}
	return fail("curl", 7, err)
}

// wget is curl with wget's options.
func wget(args []string) int {
	same := map[string]string{"-T": "--max-time", "-O": "-o"}
	all := []string{"-f"}
	for _, a := range args {
		all = append(all, cmp.Or(same[a], a))
	}
	return curl(all)
}

// print writes an answer as it was asked for; the only other output is none.
func (r request) print(resp *http.Response) error {
	var out io.Writer = os.Stdout
	if r.output != "" && r.output != "-" {
		out = io.Discard
	}
	if r.head {
		head, err := httputil.DumpResponse(resp, false)
		if err != nil {
			return err
		}
		if _, err := out.Write(head); err != nil {
			return err
		}
	}
	if _, err := io.Copy(out, resp.Body); err != nil {
		return err
	}
	_, err := fmt.Print(strings.ReplaceAll(r.after, "%{http_code}", strconv.Itoa(resp.StatusCode)))
	return err
}
