package cnitest

import (
	"encoding/hex"
	"io"
	"net"
)

// Recorded bytes of the release before protocol v2, in hexadecimal. It spoke gRPC.
const (
	// PreviousPluginAdd is an ADD of its plugin: HTTP/2's preface, settings, headers, request.
	PreviousPluginAdd = "505249202a20485454502f322e300d0a0d0a534d0d0a0d0a000000040000000000" + "000000040100000000" +
		"000056010400000001838645936252d06f341ba95725465fb857bda72310c9274186a0e41d139d095f8b1d75d0620d263d4c4d65647a8a9acac8b4c7602bbc" +
		"cae040027465864d833505b11f40899acac8b24d494f6a7f8769f7df71a03b6f" +
		"00002c00010000000100000000270a250a0973616e64626f782d61120c2f72756e2f6e65746e732f611a04657468302201782a0161"
	// previousAgent are the first bytes of its agent: HTTP/2's settings.
	previousAgent = "000006040000000000000500004000"
	// prefaceLength is the length of HTTP/2's preface.
	prefaceLength = 24
)

// ServePreviousAgent answers callers that do not speak gRPC as the agent of the release
// before protocol v2, until the listener closes: it sends its settings, reads as much as
// HTTP/2's preface has, and closes the connection. It calls refused after each.
func ServePreviousAgent(listener net.Listener, refused func()) error {
	first, err := hex.DecodeString(previousAgent)
	if err != nil {
		return err
	}
	for {
		conn, err := listener.Accept()
		if err != nil {
			return nil // it is closed
		}
		// A caller that is gone already is refused, too.
		_, _ = conn.Write(first)
		_, _ = io.ReadFull(conn, make([]byte, prefaceLength))
		conn.Close()
		refused()
	}
}
