package model

// TunnelPorts returns the UDP ports of the tunnels that nodes can have: VXLAN's (RFC
// 7348) and Geneve's (RFC 8926).
func TunnelPorts() []uint16 { return []uint16{4789, 6081} }
