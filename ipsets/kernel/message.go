package kernel

import (
	"golang.org/x/sys/unix"

	"github.com/felixlike/felixlike/internal/nfnetlink"
	"github.com/felixlike/felixlike/ipsets"
	"github.com/felixlike/felixlike/model"
)

// Commands, attributes and flags (uapi/linux/netfilter/ipset/ip_set.h).
const (
	cmdCreate  = 2
	cmdDestroy = 3
	cmdSwap    = 6
	cmdList    = 7
	cmdAdd     = 9
	cmdDel     = 10

	attrProtocol = 1
	attrSetName  = 2
	attrTypeName = 3
	attrSetName2 = attrTypeName
	attrRevision = 4
	attrFamily   = 5
	attrFlags    = 6
	attrData     = 7
	attrADT      = 8

	attrTimeout  = 6
	attrSetFlags = 8
	attrMarkMask = 11
	attrBitmask  = 12
	attrHashSize = 18
	attrMaxElem  = 19
	attrNetmask  = 20
	attrElements = 24

	flagListHeader = 1 << 2
)

const (
	// protocol is that of kernels since 2.6.39; 7 only adds commands.
	protocol = 6
	// revision of our types: the first with SCTP in hash:ip,port. Those behind
	// it are for options that we do not use, but for the exceptions of hash:net,
	// which the ipset tool shows from its revision 2 on.
	revision         = 1
	revisionNetworks = 2
)

// begin opens a message about the set of a name in the kernel.
func begin(m *nfnetlink.Messages, command uint8, flags uint16, name string) {
	m.Begin(unix.NFNL_SUBSYS_IPSET, command, flags, unix.AF_INET)
	m.Uint8(attrProtocol, protocol)
	if name != "" {
		m.Text(attrSetName, name)
	}
}

// writeCreate writes the message that creates a set under a name. The kernel refuses
// it if a set of that name exists.
func writeCreate(m *nfnetlink.Messages, name string, set ipsets.Set, hashSize, maxElements int) {
	begin(m, cmdCreate, unix.NLM_F_ACK|unix.NLM_F_CREATE|unix.NLM_F_EXCL, name)
	m.Text(attrTypeName, typeName(set.Kind))
	if set.Kind == model.Networks {
		m.Uint8(attrRevision, revisionNetworks)
	} else {
		m.Uint8(attrRevision, revision)
	}
	m.Uint8(attrFamily, protocolFamily(set.Family))
	data := m.Nest(attrData)
	m.Uint32(attrHashSize, uint32(hashSize))
	m.Uint32(attrMaxElem, uint32(maxElements))
	m.Close(data)
	m.End()
}

// writeDestroy writes the message that destroys a set.
func writeDestroy(m *nfnetlink.Messages, name string) {
	begin(m, cmdDestroy, unix.NLM_F_ACK, name)
	m.End()
}

// writeSwap writes the message that swaps two sets: rules that refer to one of them
// refer to the other from then on.
func writeSwap(m *nfnetlink.Messages, a, b string) {
	begin(m, cmdSwap, unix.NLM_F_ACK, a)
	m.Text(attrSetName2, b)
	m.End()
}

// writeElements writes the message that adds elements to a set or deletes them
// from it. Without NLM_F_EXCL the kernel accepts to add an existing element, and to
// delete a missing one.
func writeElements(m *nfnetlink.Messages, command uint8, name string, kind model.GroupKind, elements []element) {
	begin(m, command, unix.NLM_F_ACK, name)
	m.Uint32(attrLineNo, 0)
	list := m.Nest(attrADT)
	for i, e := range elements {
		writeElement(m, kind, e, i+1)
	}
	m.Close(list)
	m.End()
}

// elementsPerMessage bounds the elements of one message, which are in one
// attribute.
const elementsPerMessage = (nfnetlink.MaxNest - 4) / elementSize

// writeList writes the request for the set of the name with its elements, or without
// a name for all sets without their elements.
func writeList(m *nfnetlink.Messages, name string) {
	begin(m, cmdList, unix.NLM_F_DUMP, name)
	if name == "" {
		m.Uint32(attrFlags, flagListHeader)
	}
	m.End()
}
