package driver

import (
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"prezero.dev/kubernetes/internal/broker"
	"prezero.dev/kubernetes/internal/places"
)

// Metrics are what Prometheus sees of the driver.
type Metrics struct {
	Errors, Swept, Published prometheus.Counter
	// without is of containers, runtime of what tells of them.
	without, runtime prometheus.Gauge

	seconds    *prometheus.HistogramVec
	unprepares *prometheus.CounterVec
	leases     *prometheus.CounterVec
	bytes      *prometheus.GaugeVec
	up         prometheus.Gauge
	taints     *prometheus.GaugeVec
}

// taints of devices, as metrics name them.
var taints = []string{"draining", "audit", "broker"}

// NewMetrics registers them.
func NewMetrics(registry prometheus.Registerer) *Metrics {
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Namespace: "prezero_dra", Name: name, Help: help})
	}
	gauge := func(name, help string) prometheus.Gauge {
		return prometheus.NewGauge(prometheus.GaugeOpts{Namespace: "prezero_dra", Name: name, Help: help})
	}
	m := &Metrics{
		Errors:    counter("background_errors_total", "errors outside of calls of the kubelet"),
		Swept:     counter("swept_claims_total", "claims that were gone and had leases here"),
		Published: counter("published_total", "times that the devices of this node changed"),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{Namespace: "prezero_dra", Name: "prepare_seconds",
			Help: "time to prepare a claim, by result", Buckets: []float64{.001, .002, .005, .01, .02, .05, .1, .2, .5, 1, 2, 5, 10}}, []string{"result"}),
		unprepares: prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: "prezero_dra", Name: "unprepares_total",
			Help: "claims given back, by result"}, []string{"result"}),
		leases: prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: "prezero_dra", Name: "leases_total",
			Help: "leases named: from stock, made while the claim waited, or found"}, []string{"from"}),
		bytes: prometheus.NewGaugeVec(prometheus.GaugeOpts{Namespace: "prezero_dra", Name: "bytes",
			Help: "bytes of a directory: its size, used by leases, leased to claims"}, []string{"dir", "page", "state"}),
		up:      gauge("broker_up", "1 if prezerod answered"),
		runtime: gauge("runtime_up", "1 if the container runtime tells of containers, by NRI"),
		without: gauge("containers_without_library", "containers that run without the library though their namespaces ask for it"),
		taints: prometheus.NewGaugeVec(prometheus.GaugeOpts{Namespace: "prezero_dra", Name: "tainted",
			Help: "1 if no claim comes here, by the taint of the devices"}, []string{"taint"}),
	}
	registry.MustRegister(m.Errors, m.Swept, m.Published, m.seconds, m.unprepares, m.leases, m.bytes, m.up, m.runtime, m.without, m.taints)
	return m
}

// tainted is the taint that the devices have now; "": none.
func (m *Metrics) tainted(now string) {
	for _, taint := range taints {
		value := 0.0
		if taint == now {
			value = 1
		}
		m.taints.WithLabelValues(taint).Set(value)
	}
}

func (m *Metrics) prepared(took time.Duration, err error) {
	m.seconds.WithLabelValues(result(err)).Observe(took.Seconds())
}

func (m *Metrics) unprepared(err error) { m.unprepares.WithLabelValues(result(err)).Inc() }

func (m *Metrics) named(named broker.Named) {
	from := "stock"
	switch {
	case named.Found:
		from = "found"
	case named.Waited > 0:
		from = "made"
	}
	m.leases.WithLabelValues(from).Inc()
}

func (m *Metrics) lookedAt(all []places.Place, held map[string]uint64, err error) {
	up := 1.0
	if err != nil {
		up = 0
	}
	m.up.Set(up)
	for _, place := range all {
		for state, bytes := range map[string]uint64{"size": place.Size, "used": place.Used, "leased": held[place.Dir]} {
			m.bytes.WithLabelValues(place.Dir, place.Page.String(), state).Set(float64(bytes))
		}
	}
}

// result of a call, as a label: the broker's reason where it is one.
func result(err error) string {
	var refused *broker.Refused
	var notNow *broker.NotNow
	switch {
	case err == nil:
		return "ok"
	case errors.As(err, &notNow):
		return "not-now"
	case errors.As(err, &refused):
		return refused.Reason.String()
	}
	return "error"
}
