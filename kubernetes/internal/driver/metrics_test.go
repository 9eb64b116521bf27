package driver

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/yaml"
)

// described registers nothing: it takes down what the metrics are called.
type described map[string]bool

var fqName = regexp.MustCompile(`fqName: "([^"]+)"`)

func (d described) Register(c prometheus.Collector) error {
	all := make(chan *prometheus.Desc, 16)
	c.Describe(all)
	close(all)
	for desc := range all {
		d[fqName.FindStringSubmatch(desc.String())[1]] = true
	}
	return nil
}

func (d described) MustRegister(all ...prometheus.Collector) {
	for _, c := range all {
		_ = d.Register(c)
	}
}

func (d described) Unregister(prometheus.Collector) bool { return false }

func TestAlertsAndDashboardNameWhatTheDriverTells(t *testing.T) {
	known := described{}
	NewMetrics(known)
	for _, file := range []string{"alerts.yaml", "dashboard.json"} {
		text, err := os.ReadFile("../../../crates/prezerod/ops/" + file)
		if err != nil {
			t.Fatal(err)
		}
		// JSON is YAML, too.
		var parsed map[string]any
		if err := yaml.UnmarshalStrict(text, &parsed); err != nil {
			t.Errorf("%s: %v", file, err)
		}
		found := regexp.MustCompile(`prezero_dra_[a-z_]+`).FindAllString(string(text), -1)
		if len(found) < 4 {
			t.Errorf("%s names %v", file, found)
		}
		for _, name := range found {
			family := name
			for _, end := range []string{"_bucket", "_count", "_sum"} {
				family = strings.TrimSuffix(family, end)
			}
			if !known[family] {
				t.Errorf("%s: no metric %s", file, name)
			}
		}
		for _, match := range regexp.MustCompile(`taint=\\?"([a-z]+)`).FindAllStringSubmatch(string(text), -1) {
			if !slices.Contains(taints, match[1]) {
				t.Errorf("%s: no taint %s", file, match[1])
			}
		}
	}
}

func TestTheTaintOfTheDevicesIsOneMetric(t *testing.T) {
	registry := prometheus.NewRegistry()
	metrics := NewMetrics(registry)
	for _, now := range []string{"draining", "", "broker"} {
		metrics.tainted(now)
		families, err := registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		set := map[string]float64{}
		for _, family := range families {
			if family.GetName() != "prezero_dra_tainted" {
				continue
			}
			for _, metric := range family.GetMetric() {
				set[metric.GetLabel()[0].GetValue()] = metric.GetGauge().GetValue()
			}
		}
		for _, taint := range taints {
			if value := set[taint]; (value == 1) != (taint == now) {
				t.Errorf("%q: %v", now, set)
			}
		}
	}
}
