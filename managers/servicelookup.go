package managers

import (
	"encoding/binary"
	"net/netip"
	"strings"
	"time"

	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/rules"
)

// ServiceElements are the elements of the table of Services of one family, as the kernel has them: values by key, by set.
type ServiceElements map[string]map[string]string

// ServiceLead is what the table does with a new connection to a frontend.
type ServiceLead struct {
	// Barred: the client is in no source range. Refused, Silent: there is no endpoint for it. NoPort: refused, the cluster IP has no such port.
	Barred, Refused, Silent, NoPort bool
	Endpoints                       []netip.AddrPort
	// Affinity is how long the client keeps its endpoint.
	Affinity time.Duration
}

// Lead returns what the table does with a connection of a client, outside (not on the node) or not, to a frontend. That of a NodePort has the
// unspecified address. It reports false if the table has no such frontend.
func (e ServiceElements) Lead(client netip.Addr, outside bool, to netip.AddrPort, p model.Protocol) (lead ServiceLead, found bool) {
	f := model.FamilyOf(to.Addr())
	key := frontendKey(to.Addr(), p, to.Port())
	if _, lead.Barred = e[rules.ServiceRestricted.Of(f)][key]; lead.Barred {
		for source := range e[rules.ServiceSources.Of(f)] {
			if size := len(key) + client.BitLen()/8; strings.HasPrefix(source, key) && len(source) == 2*size {
				from, _ := netip.AddrFromSlice([]byte(source[len(key):size]))
				last, _ := netip.AddrFromSlice([]byte(source[size+len(key):]))
				lead.Barred = lead.Barred && (client.Less(from) || last.Less(client))
			}
		}
	}
	if lead.Barred {
		return lead, true
	}
	if _, lead.Refused = e[rules.ServiceRefused.Of(f)][key]; lead.Refused {
		return lead, true
	}
	endpoints := e[rules.ServiceEndpoints.Of(f)]
	number := func(n uint32) (uint32, bool) {
		v, ok := endpoints[numbered(key, n)]
		if len(v) < 4 {
			return 0, false
		}
		return binary.NativeEndian.Uint32([]byte(v)), ok
	}
	pick, first := uint32(0), uint32(rules.ServiceOutsideSlot)
	if outside {
		pick, found = number(rules.ServicePickedOutside)
	}
	if !found {
		first = 0
		if pick, found = number(rules.ServicePicked); !found {
			_, lead.NoPort = e[rules.ServiceClusterIPs.Of(f)][string(to.Addr().AsSlice())]
			return lead, lead.NoPort
		}
	}
	lead.Affinity = rules.ServicePickAffinity(pick)
	count := rules.ServicePickCount(pick)
	lead.Silent = count == 0
	for slot := first; slot < first+count; slot++ {
		at := slot
		if lead.Affinity > 0 {
			at, _ = number(slot)
		}
		size := client.BitLen() / 8
		if v := endpoints[numbered(key, at)]; len(v) >= size+2 {
			a, _ := netip.AddrFromSlice([]byte(v[:size]))
			lead.Endpoints = append(lead.Endpoints, netip.AddrPortFrom(a, binary.BigEndian.Uint16([]byte(v[size:]))))
		}
	}
	return lead, true
}
