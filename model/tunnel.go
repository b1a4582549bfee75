package model

// TunnelPorts returns the UDP ports of the tunnels that nodes can have: VXLAN's (RFC
// 7348) and Geneve's (RFC 8926).
func TunnelPorts() []uint16 { return []uint16{portVXLAN, portGeneve} }

const (
	portVXLAN  = 4789
	portGeneve = 6081
)

// TunnelPortOf returns the UDP port of a tunnel type of the configuration, or zero if it has none.
func TunnelPortOf(tunnel string) uint16 {
	switch tunnel {
	case "geneve":
		return portGeneve
	case "vxlan":
		return portVXLAN
	}
	return 0
}
