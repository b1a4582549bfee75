package plugin

import (
	"encoding/json"
	"testing"

	"github.com/containernetworking/cni/pkg/skel"
)

// FuzzConfiguration has the plugin read any standard input and CNI_ARGS. A GC without a list of attachments must be
// refused: it would remove all of them.
func FuzzConfiguration(f *testing.F) {
	const head = `{"cniVersion":"1.1.0","name":"n","type":"felixlike-cni"`
	for _, stdin := range []string{
		"", "{", "null", "[]", `""`, head + "}", head + `,"socket":"relative"}`, head + `,"socket":"/s"}`,
		head + `,"cni.dev/valid-attachments":[]}`, head + `,"cni.dev/valid-attachments":null}`,
		head + `,"cni.dev/valid-attachments":[{"containerID":"a","ifname":"eth0"}]}`,
		head + `,"CNI.DEV/valid-attachments":[{"containerID":"a","ifname":"eth0"}]}`,
		head + `,"prevResult":{"cniVersion":"1.1.0","interfaces":[{"name":"eth0"}],"ips":[{"interface":7,"address":"10.0.0.1/24"}]}}`,
		head + `,"prevResult":{"cniVersion":"9.9.9","ips":[{"interface":-1,"address":"x"}]}}`,
	} {
		f.Add([]byte(stdin), "K8S_POD_NAMESPACE=x;K8S_POD_NAME=a;IgnoreUnknown=1")
		f.Add([]byte(stdin), "=;;a")
	}
	f.Fuzz(func(t *testing.T, stdin []byte, args string) {
		_, _ = sandboxOf(&skel.CmdArgs{ContainerID: "c", IfName: "eth0", Args: args})
		c, err := parse(stdin)
		if err != nil {
			return
		}
		if c.Socket == "" || c.Socket[0] != '/' {
			t.Fatalf("socket %q", c.Socket)
		}
		_, _ = c.previous("eth0")
		request, err := c.valid(stdin)
		if err != nil {
			return
		}
		var keys map[string]json.RawMessage
		if json.Unmarshal(stdin, &keys) != nil || keys["cni.dev/valid-attachments"] == nil || len(request.Valid) != len(c.ValidAttachments) {
			t.Fatalf("a GC without its list is accepted: %q", stdin)
		}
	})
}
