// Package ipvs tells whether the kernel's IP Virtual Server forwards packets on this node,
// as it does for kube-proxy in mode ipvs. It only reads.
package ipvs

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"
)

// path lists the virtual services of the calling thread's network namespace (kernel:
// net/netfilter/ipvs/ip_vs_ctl.c). It does not exist if the module ip_vs is not loaded.
const path = "/proc/thread-self/net/ip_vs"

// Problem says why policy does not hold for connections to Services, or "" if the network
// namespace of the calling thread has no virtual service.
func Problem() string {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return ""
	}
	found := false
	if err == nil {
		defer f.Close()
		found, err = hasService(f)
	}
	switch {
	case err != nil:
		return fmt.Sprintf("virtual services of IPVS cannot be read: %v", err)
	case !found:
		return ""
	}
	return "the kernel's IPVS forwards connections to Services: kube-proxy runs in mode ipvs, or did and left its Services in the kernel. " +
		"These packets bypass the rules of policy, so denied connections may pass: set kube-proxy's mode to nftables or iptables, and run kube-proxy --cleanup"
}

// protocols begin the line of a virtual service. FWM is one that packets reach by their mark.
func protocols() []string { return []string{"TCP", "UDP", "SCTP", "FWM"} }

// hasService reports whether a listing has a virtual service. It reads no further than the first.
func hasService(listing io.Reader) (bool, error) {
	for lines := bufio.NewScanner(listing); ; {
		if !lines.Scan() {
			return false, lines.Err()
		}
		if first, _, _ := strings.Cut(lines.Text(), " "); slices.Contains(protocols(), first) {
			return true, nil
		}
	}
}
