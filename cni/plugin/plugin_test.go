package plugin

import (
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/felixlike/felixlike/cni/cniv1"
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
	for grpcCode, want := range map[codes.Code]uint{
		codes.Unavailable: 11, codes.DeadlineExceeded: 11, codes.Canceled: 11, codes.ResourceExhausted: 11, codes.Aborted: 11,
		codes.Unimplemented: 11, codes.InvalidArgument: 4, codes.Internal: 999, codes.Unknown: 999, codes.FailedPrecondition: 999,
	} {
		if got := code(t, c.cniError(status.Error(grpcCode, "why"))); got != want {
			t.Errorf("%s: code %d, want %d", grpcCode, got, want)
		}
	}
	if err := c.cniError(nil); err != nil {
		t.Error(err)
	}
}

// TestOtherVersionOfTheAPI asks an agent that does not know the service.
func TestOtherVersionOfTheAPI(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s")
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	served := make(chan error)
	go func() { served <- server.Serve(listener) }()
	defer func() { server.Stop(); <-served }()
	err = del(&skel.CmdArgs{ContainerID: "id", IfName: "eth0", StdinData: fmt.Appendf(nil, `{"cniVersion": "1.1.0", "name": "x", "socket": %q}`, socket)})
	if code(t, err) != 11 || !strings.Contains(err.Error(), "does not speak this plugin's version") {
		t.Error(err)
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
		for _, a := range request.GetValid() {
			all = append(all, a.GetContainerId()+"/"+a.GetInterface())
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
	want := &cniv1.Sandbox{ContainerId: "id", Netns: "/run/netns/x", Interface: "eth0", PodNamespace: "x", PodName: "a", PodUid: "u"}
	if err != nil || got.String() != want.String() {
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
