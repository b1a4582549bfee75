package iptables

import (
	"bytes"
	"context"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/felixlike/felixlike/internal/nfnetlink"
)

// watchNFT receives the kernel's notifications of nf_tables.
func (w *watcher) watchNFT(ctx context.Context, changed func()) error {
	l, err := nfnetlink.Listen(w.netns, unix.NFNLGRP_NFTABLES)
	if err != nil {
		return err
	}
	defer func() { _ = l.Close() }() // the next Apply reads in full
	defer l.Until(ctx)()
	w.missed(changed)
	for {
		all, err := l.Receive()
		if err != nil {
			return err
		}
		for n := range all {
			if concernsUs(n) && !w.isOwn(n.Port) {
				w.record(changed)
			}
		}
	}
}

// concernsUs reports whether a notification is about a chain of ours, a chain of
// the kernel's that leads there, or a table with such chains.
func concernsUs(n nfnetlink.Notification) bool {
	if n.Family != unix.NFPROTO_IPV4 && n.Family != unix.NFPROTO_IPV6 {
		return false
	}
	// The table is the first attribute of every kind of object.
	const tableAttribute = 1
	at := uint16(0)
	switch n.Kind {
	case unix.NFT_MSG_NEWRULE, unix.NFT_MSG_DELRULE:
		at = unix.NFTA_RULE_CHAIN
	case unix.NFT_MSG_NEWCHAIN, unix.NFT_MSG_DELCHAIN:
		at = unix.NFTA_CHAIN_NAME
	case unix.NFT_MSG_NEWTABLE, unix.NFT_MSG_DELTABLE:
	default:
		return false
	}
	var table kernelTable
	known := false
	for attribute, v := range nfnetlink.Attributes(n.Attributes) {
		name, _, _ := bytes.Cut(v, []byte{0})
		switch {
		case attribute == tableAttribute:
			if table, known = parseKernelTable(string(name)); !known || at == 0 {
				return known
			}
		case known && attribute == at:
			return strings.HasPrefix(string(name), Prefix) || leadsToUs(table, string(name))
		}
	}
	return false
}

// leadsToUs reports whether base chains may be entered from the kernel's chain.
func leadsToUs(k kernelTable, chain string) bool {
	switch (entry{k, chain}) {
	case entry{tableRaw, "PREROUTING"}, entry{tableMangle, "PREROUTING"}, entry{tableMangle, "FORWARD"}, entry{tableMangle, "INPUT"},
		entry{tableMangle, "POSTROUTING"}, entry{tableFilter, "FORWARD"}, entry{tableNAT, "POSTROUTING"}:
		return true
	}
	return false
}
