package model

import "net/netip"

// TenantUpdate has the number of a namespace, with which the pipeline of OpenShift SDN isolates it. With neither a number nor Global the
// namespace has none: nothing reaches its pods, and they reach nothing.
type TenantUpdate struct {
	Namespace string
	// Number is shared by the namespaces that reach each other.
	Number uint32
	// Global is set if all namespaces reach it, and it reaches all.
	Global bool
}

func (TenantUpdate) isUpdate() {}

// GlobalPodsUpdate has the addresses of the pods of all namespaces with Global, sorted.
type GlobalPodsUpdate struct{ Addresses []netip.Addr }

func (GlobalPodsUpdate) isUpdate() {}
