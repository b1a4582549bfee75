package livebench

import (
	"testing"
)

func TestMetricsAreSummedByLabels(t *testing.T) {
	s, err := parseMetrics("# HELP x y\n# TYPE x counter\nx_total{kind=\"full\",stage=\"nftables\"} 2\nx_total{kind=\"delta\",stage=\"nftables\"} 3.5\n\ny 1e+06\n")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name   string
		labels []string
		want   float64
	}{
		{"x_total", nil, 5.5},
		{"x_total", []string{`stage="nftables"`, `kind="full"`}, 2},
		{"x_total", []string{`stage="openflow"`}, 0},
		{"y", nil, 1e6},
		{"x", nil, 0},
	} {
		if got := s.sum(c.name, c.labels...); got != c.want {
			t.Errorf("%s %v: %v, want %v", c.name, c.labels, got, c.want)
		}
	}
	h, err := parseMetrics("d_bucket{stage=\"a\",le=\"0.1\"} 5\nd_bucket{stage=\"a\",le=\"1\"} 9\nd_bucket{stage=\"a\",le=\"+Inf\"} 10\nd_count{stage=\"a\"} 10\n")
	if err != nil {
		t.Fatal(err)
	}
	if a, b, c := h.quantile("d", 0.5, `stage="a"`), h.quantile("d", 0.9, `stage="a"`), h.quantile("d", 0.99, `stage="a"`); a != 0.1 || b != 1 || c != 0 {
		t.Errorf("quantiles %v, %v, %v", a, b, c)
	}
	for _, bad := range []string{"x\n", "x y\n"} {
		if _, err := parseMetrics(bad); err == nil {
			t.Errorf("%q is taken", bad)
		}
	}
}
