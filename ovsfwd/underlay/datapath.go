package underlay

import (
	"fmt"
	"slices"

	"github.com/vishvananda/netlink"

	"github.com/felixlike/felixlike/ovsfwd/ovsdb"
)

// family is the generic netlink family of the kernel's datapath.
const family = "ovs_datapath"

// KernelDatapath returns why the kernel has no datapath, or nil. The question
// itself has the kernel load the module, if there is one.
func KernelDatapath() error {
	if _, err := netlink.GenlFamilyGet(family); err != nil {
		return fmt.Errorf("the kernel's module openvswitch does not answer: %w", err)
	}
	return nil
}

// Datapath returns the type of datapath that the bridge is to have, and why:
// the kernel's, if the module answers (kernel is nil) and ovs-vswitchd offers it,
// else the userspace one. A bridge keeps its datapath: a node that had the kernel's does not become several
// times slower because an update of the kernel left the module out. Its agent reports the missing module instead.
func Datapath(kernel error, offered []string, has string) (choice, why string) {
	system := kernel == nil && (len(offered) == 0 || slices.Contains(offered, ovsdb.DatapathSystem))
	switch {
	case has == ovsdb.DatapathNetdev && system:
		return has, "the bridge has it already; the kernel's datapath would work too: set datapath to system to change over"
	case has == ovsdb.DatapathNetdev:
		return has, "the bridge has it already"
	case system:
		return ovsdb.DatapathSystem, "the kernel's module openvswitch answers"
	}
	missing := "ovs-vswitchd does not offer the kernel's datapath (was it started with --disable-system?)"
	if kernel != nil {
		missing = kernel.Error()
	}
	if has == ovsdb.DatapathSystem {
		return has, "the bridge has it, but " + missing + ": install the module for this kernel, or set datapath to netdev, which is several times slower"
	}
	return ovsdb.DatapathNetdev, missing
}
