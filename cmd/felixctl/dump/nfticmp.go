package dump

import "strconv"

// icmpNames are nft's names of the types or codes of ICMP. It writes numbers for the others.
type icmpNames map[string]uint8

// icmpWords returns nft's names for the word "icmp" or "icmpv6" (nft 1.0.6; nft describe icmp type).
func icmpWords(word string) (names struct{ types, codes icmpNames }) {
	names.types, names.codes = icmpTypes(), icmpCodes()
	if word == "icmpv6" {
		names.types, names.codes = icmpv6Types(), icmpv6Codes()
	}
	return names
}

func (n icmpNames) write(value uint8) string {
	for name, v := range n {
		if v == value {
			return name
		}
	}
	return strconv.Itoa(int(value))
}

// read reads one word, a name or a number.
func (n icmpNames) read(words []string) (uint8, bool) {
	if len(words) != 1 {
		return 0, false
	}
	if v, found := n[words[0]]; found {
		return v, true
	}
	v, err := number8(words[0])
	return v, err == nil
}

func icmpTypes() icmpNames {
	return icmpNames{
		"echo-reply": 0, "destination-unreachable": 3, "source-quench": 4, "redirect": 5, "echo-request": 8,
		"router-advertisement": 9, "router-solicitation": 10, "time-exceeded": 11, "parameter-problem": 12,
		"timestamp-request": 13, "timestamp-reply": 14, "info-request": 15, "info-reply": 16,
		"address-mask-request": 17, "address-mask-reply": 18,
	}
}

func icmpCodes() icmpNames {
	return icmpNames{
		"net-unreachable": 0, "host-unreachable": 1, "prot-unreachable": 2, "port-unreachable": 3, "frag-needed": 4,
		"net-prohibited": 9, "host-prohibited": 10, "admin-prohibited": 13,
	}
}

func icmpv6Types() icmpNames {
	return icmpNames{
		"destination-unreachable": 1, "packet-too-big": 2, "time-exceeded": 3, "parameter-problem": 4,
		"echo-request": 128, "echo-reply": 129, "mld-listener-query": 130, "mld-listener-report": 131,
		"mld-listener-done": 132, "nd-router-solicit": 133, "nd-router-advert": 134, "nd-neighbor-solicit": 135,
		"nd-neighbor-advert": 136, "nd-redirect": 137, "router-renumbering": 138, "ind-neighbor-solicit": 141,
		"ind-neighbor-advert": 142, "mld2-listener-report": 143,
	}
}

func icmpv6Codes() icmpNames {
	return icmpNames{
		"no-route": 0, "admin-prohibited": 1, "addr-unreachable": 3, "port-unreachable": 4, "policy-fail": 5, "reject-route": 6,
	}
}
