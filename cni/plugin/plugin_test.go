package plugin

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"

	"github.com/felixlike/felixlike/cni/protocol"
	"github.com/felixlike/felixlike/internal/socketapi"
	"github.com/felixlike/felixlike/test/cnitest"
)

// code returns CNI's code of an error.
func code(t *testing.T, err error) uint {
	t.Helper()
	var e *types.Error
	if !errors.As(err, &e) {
		t.Fatalf("%T %v is none of CNI's errors", err, err)
	}
	return e.Code
}

func TestErrorCodes(t *testing.T) {
	c := &config{Socket: "/run/x.sock"}
	for of, want := range map[socketapi.Code]uint{
		socketapi.Unavailable: 11, socketapi.Deadline: 11, socketapi.Canceled: 11, socketapi.TooLarge: 11,
		socketapi.UnknownVersion: 11, socketapi.UnknownPath: 11, socketapi.WrongMethod: 11, "": 11, "of-a-later-release": 11,
		socketapi.Invalid: 4, socketapi.Failed: 999, socketapi.NotReady: 999,
	} {
		if got := code(t, c.cniError(socketapi.Refuse(of, "why"))); got != want {
			t.Errorf("%s: code %d, want %d", of, got, want)
		}
	}
	if got := code(t, c.cniError(io.ErrUnexpectedEOF)); got != 11 {
		t.Errorf("a connection that breaks: code %d", got)
	}
	if err := c.cniError(nil); err != nil {
		t.Error(err)
	}
}

// TestOtherVersionsOfTheAPI asks agents of the release before and of a later one.
func TestOtherVersionsOfTheAPI(t *testing.T) {
	later := func(listener net.Listener, _ func()) error {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return nil // it is closed
			}
			request, err := http.ReadRequest(bufio.NewReader(conn))
			if err != nil || request.URL.Path != protocol.DelPath {
				t.Error(request, err)
			}
			const text = `{"error": "unknown API version \"v2\": this agent serves v3", "code": "unknown-version", "new": 1}`
			_, _ = fmt.Fprintf(conn, "HTTP/1.1 404 Not Found\r\nContent-Length: %d\r\n\r\n%s", len(text), text)
			conn.Close()
		}
	}
	for details, agent := range map[string]func(net.Listener, func()) error{
		socketapi.ErrNotHTTP.Error(): cnitest.ServePreviousAgent, `unknown API version "v2": this agent serves v3`: later,
	} {
		socket := filepath.Join(t.TempDir(), "s")
		listener, err := net.Listen("unix", socket)
		if err != nil {
			t.Fatal(err)
		}
		served := make(chan error, 1)
		go func() { served <- agent(listener, func() {}) }()
		for range 20 {
			err := del(&skel.CmdArgs{ContainerID: "id", IfName: "eth0", StdinData: fmt.Appendf(nil, `{"cniVersion": "1.1.0", "name": "x", "socket": %q}`, socket)})
			if code(t, err) != 11 || !strings.Contains(err.Error(), "does not speak this plugin's version of the API") ||
				!strings.Contains(err.Error(), "try again later") || !strings.Contains(err.Error(), details) {
				t.Error(err)
			}
		}
		listener.Close()
		if err := <-served; err != nil {
			t.Error(err)
		}
	}
}

func TestConfig(t *testing.T) {
	c, err := parse([]byte(`{"cniVersion": "1.0.0", "name": "felixlike"}`))
	if err != nil || c.Socket != defaultSocket {
		t.Errorf("%+v %v", c, err)
	}
	for text, want := range map[string]uint{`{"socket": "x"}`: 7, `{"socket": 1}`: 6, `[`: 6} {
		if _, err := parse([]byte(text)); code(t, err) != want {
			t.Errorf("%s: %v, want code %d", text, err, want)
		}
	}
}

func TestValidAttachments(t *testing.T) {
	valid := func(text string) ([]string, error) {
		c, err := parse([]byte(text))
		if err != nil {
			return nil, err
		}
		request, err := c.valid([]byte(text))
		var all []string
		if request == nil {
			return nil, err
		}
		for _, a := range request.Valid {
			all = append(all, a.ContainerID+"/"+a.Interface)
		}
		return all, err
	}
	if got, err := valid(`{"cni.dev/valid-attachments": [{"containerID": "a", "ifname": "eth0"}]}`); err != nil || !slices.Equal(got, []string{"a/eth0"}) {
		t.Error(got, err)
	}
	for _, none := range []string{`[]`, `null`} {
		if got, err := valid(`{"cni.dev/valid-attachments": ` + none + `}`); err != nil || len(got) != 0 {
			t.Error(none, got, err)
		}
	}
	if _, err := valid(`{}`); code(t, err) != 7 {
		t.Error(err)
	}
}

func TestSandbox(t *testing.T) {
	args := &skel.CmdArgs{ContainerID: "id", Netns: "/run/netns/x", IfName: "eth0", Args: "IgnoreUnknown=1;K8S_POD_NAMESPACE=x;K8S_POD_NAME=a;K8S_POD_UID=u;K8S_POD_INFRA_CONTAINER_ID=id;NEW=1"}
	got, err := sandboxOf(args)
	want := protocol.Sandbox{ContainerID: "id", NetNS: "/run/netns/x", Interface: "eth0", PodNamespace: "x", PodName: "a", PodUID: "u"}
	if err != nil || got != want {
		t.Errorf("%v %v, want %v", got, err, want)
	}
	args.Args = "nonsense"
	if _, err := sandboxOf(args); code(t, err) != 4 {
		t.Error(err)
	}
}

// TestPrevious takes the addresses of the pod's own interface from a result of
// several plugins, in the form of each version.
func TestPrevious(t *testing.T) {
	for text, want := range map[string][]string{
		`{"cniVersion": "1.1.0", "prevResult": {"cniVersion": "1.1.0", "interfaces": [{"name": "fx-a"}, {"name": "eth0", "sandbox": "/n"}, {"name": "net1", "sandbox": "/n"}],
		  "ips": [{"address": "10.0.0.2/24", "interface": 1}, {"address": "10.1.0.2/24", "interface": 2}, {"address": "fd00::2/64"}]}}`: {"10.0.0.2/24", "fd00::2/64"},
		`{"cniVersion": "0.4.0", "prevResult": {"cniVersion": "0.4.0", "interfaces": [{"name": "fx-a"}, {"name": "eth0", "sandbox": "/n"}],
		  "ips": [{"version": "4", "address": "10.0.0.2/24", "interface": 1}]}}`: {"10.0.0.2/24"},
	} {
		c, err := parse([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		if got, err := c.previous("eth0"); err != nil || !slices.Equal(got, want) {
			t.Errorf("%v %v, want %v", got, err, want)
		}
	}
	c, err := parse([]byte(`{"cniVersion": "1.1.0"}`))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.previous("eth0"); code(t, err) != 7 {
		t.Error(err)
	}
}
