package felixlike

import (
	"bytes"
	"log/slog"
	"net/netip"
	"strings"
	"testing"

	"github.com/felixlike/felixlike/felixlike/backend"
	"github.com/felixlike/felixlike/felixlike/config"
)

func TestMissingServicePrefixesAreTold(t *testing.T) {
	for _, c := range []struct {
		backend, datastore string
		services           []netip.Prefix
		logged             bool
	}{
		{config.OpenFlow, config.Manifests, nil, true},
		{config.OpenFlow, config.Manifests, []netip.Prefix{netip.MustParsePrefix("10.96.0.0/12")}, false},
		{config.OpenFlow, config.Kubernetes, nil, false},
		{config.NFTables, config.Manifests, nil, false},
	} {
		var log bytes.Buffer
		choice := backend.Config{Name: c.backend, Node: "n1"}
		choice.Switch.Node.ServiceCIDRs = c.services
		b, err := newBackend(t.Context(), choice, c.datastore, slog.New(slog.NewTextHandler(&log, nil)))
		if err != nil {
			t.Fatal(err)
		}
		if err := b.Close(); err != nil {
			t.Error(err)
		}
		if logged := strings.Contains(log.String(), "serviceCIDRs"); logged != c.logged {
			t.Errorf("%s with %v: %q", c.backend, c.services, log.String())
		}
	}
}
