package expression

import (
	"golang.org/x/sys/unix"

	"github.com/felixlike/felixlike/tables"
)

// Registers of grant. An address takes register 1, and the others are of 4 bytes. The kernel names the first of a
// register of 16 bytes by that one's number. A key of a grant begins in register 3.
const (
	regList        = unix.NFT_REG_2
	regPeers       = reg32 + 5
	regMark        = reg32 + 6
	regKey         = unix.NFT_REG_3
	regKeyPeers    = reg32 + 9
	regKeyProtocol = reg32 + 10
	regKeyPort     = reg32 + 11
)

// grant looks up the list of the pod and the identity of the peer, and with both a grant.
//
// nft 1.0.6 aborts when it lists a rule that has the value of a map in a concatenation. So the numbers take a way by the
// mark of the packet: nft lists that rule. The packet gets its own mark back before the next expression that can end the
// rule.
func (e *encoder) grant(m tables.MatchGrant) {
	e.bind(m.Family)
	e.address(m.Family, m.Pod)
	e.lookupFrom(reg1, m.Lists, regList)
	if m.Peers != "" {
		e.address(m.Family, m.Peer())
		e.lookupFrom(reg1, m.Peers, regPeers)
	}
	e.meta(unix.NFT_META_MARK, regMark)
	e.setMeta(unix.NFT_META_MARK, regList)
	e.meta(unix.NFT_META_MARK, regKey)
	if m.Peers != "" {
		e.setMeta(unix.NFT_META_MARK, regPeers)
	} else {
		e.immediateNumber(0)
		e.setMeta(unix.NFT_META_MARK, reg1)
	}
	e.meta(unix.NFT_META_MARK, regKeyPeers)
	e.setMeta(unix.NFT_META_MARK, regMark)
	if !m.AnyPort {
		e.meta(unix.NFT_META_L4PROTO, regKeyProtocol)
		e.destinationPort(regKeyPort)
	}
	e.lookupFrom(regKey, m.Grants)
}
