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

// tableAttribute has the table: it is the first attribute of every kind of object.
const tableAttribute = 1

// chainAttribute returns the attribute that has the chain in a notification of this kind, zero for a table. known is
// false for other kinds.
func chainAttribute(kind uint8) (at uint16, known bool) {
	switch kind {
	case unix.NFT_MSG_NEWRULE, unix.NFT_MSG_DELRULE:
		return unix.NFTA_RULE_CHAIN, true
	case unix.NFT_MSG_NEWCHAIN, unix.NFT_MSG_DELCHAIN:
		return unix.NFTA_CHAIN_NAME, true
	case unix.NFT_MSG_NEWTABLE, unix.NFT_MSG_DELTABLE:
		return 0, true
	}
	return 0, false
}

// concernsUs reports whether a notification is about a chain of ours, a chain of
// the kernel's that leads there, or a table with such chains.
func concernsUs(n nfnetlink.Notification) bool {
	if n.Family != unix.NFPROTO_IPV4 && n.Family != unix.NFPROTO_IPV6 {
		return false
	}
	at, hasTable := chainAttribute(n.Kind)
	if !hasTable {
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
