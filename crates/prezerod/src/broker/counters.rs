//! What the broker counts, and how Prometheus reads it: one table for both.

use std::collections::BTreeMap;
use std::fmt::{self, Write};

use prezero_sys::escape;

use crate::protocol::Reason;

/// Tenants that are told apart: a configuration that changes names others each time. All later ones are [`OTHERS`].
/// Fixed: each is three lines of a scrape.
const MOST_TENANTS: usize = 128;
/// What later tenants are counted as.
const OTHERS: &str = "(others)";

/// What the requests of one tenant came to.
#[derive(Clone, Copy, Debug, Default)]
pub struct OfTenant {
    /// Leases served from stock at once.
    pub hits: u64,
    /// Requests for which nothing was ready.
    pub misses: u64,
    /// Requests that were refused.
    pub refused: u64,
    /// How long its granted requests waited, ns.
    pub waited_ns: u64,
}

macro_rules! counters {
    ($($field:ident $name:literal $help:literal;)*) => {
        /// Sums since the start.
        #[derive(Clone, Debug, Default)]
        pub struct Counters {
            $(#[doc = $help] pub $field: u64,)*
            /// Requests that were refused, by reason.
            pub refused: BTreeMap<Reason, u64>,
            /// How long granted requests waited.
            pub waits: Waits,
            /// The same by tenant, up to [`MOST_TENANTS`].
            pub tenants: BTreeMap<String, OfTenant>,
        }

        impl Counters {
            fn rows(&self) -> impl Iterator<Item = (&'static str, &'static str, u64)> {
                [$(($name, $help, self.$field),)*].into_iter()
            }
        }
    };
}

counters! {
    hits "lease_hits" "leases served from stock at once";
    misses "lease_misses" "requests for which nothing was ready";
    leased_bytes "leased_bytes" "bytes handed out";
    made_bytes "made_bytes" "bytes zeroed and populated";
    made_cpu_ns "made_cpu_ns" "CPU time that making them took";
    failures "make_failures" "inodes that could not be made";
    filler_deaths "filler_deaths" "filler processes that died";
    waste_bytes "waste_bytes" "bytes made and given back to the kernel unused";
    truncated_bytes "truncated_bytes" "of these, bytes cut off a lease that was smaller";
    pressure_bytes "pressure_bytes" "of these, bytes given back because memory was short";
    audits "audits" "inodes read before they were leased";
    audited_bytes "audited_bytes" "bytes read by audits";
    audit_failures "audit_failures" "inodes that were not zero";
    connections "connections" "connections accepted";
    turned_away "connections_refused" "connections over a limit";
    malformed "malformed_frames" "packets that were no frame";
    lost "lost_clients" "clients that were gone, or read nothing, when their answer was sent";
}

impl Counters {
    /// A request of this tenant was served at once.
    pub fn hit(&mut self, tenant: &str) {
        self.hits += 1;
        self.of_tenant(tenant).hits += 1;
    }

    /// Nothing was ready for one.
    pub fn miss(&mut self, tenant: &str) {
        self.misses += 1;
        self.of_tenant(tenant).misses += 1;
    }

    /// One was granted after this time.
    pub fn waited(&mut self, tenant: &str, ns: u64) {
        self.waits.add(ns);
        self.of_tenant(tenant).waited_ns += ns;
    }

    /// A tenant, which has its lines from now on.
    pub fn of_tenant(&mut self, name: &str) -> &mut OfTenant {
        let is_new = !self.tenants.contains_key(name);
        let name = if is_new && self.tenants.len() >= MOST_TENANTS { OTHERS } else { name };
        self.tenants.entry(name.to_owned()).or_default()
    }

    /// One refusal.
    pub fn refuse(&mut self, reason: Reason) {
        *self.refused.entry(reason).or_default() += 1;
    }
}

/// A histogram of waits.
#[derive(Clone, Debug, Default)]
pub struct Waits {
    counts: [u64; Waits::BOUNDS.len()],
    count: u64,
    sum_ns: u64,
}

impl Waits {
    /// Upper bounds, ns.
    const BOUNDS: [u64; 8] = [
        100_000,
        1_000_000,
        10_000_000,
        100_000_000,
        1_000_000_000,
        10_000_000_000,
        60_000_000_000,
        600_000_000_000,
    ];

    /// One wait.
    pub fn add(&mut self, ns: u64) {
        self.count += 1;
        self.sum_ns += ns;
        for (count, bound) in self.counts.iter_mut().zip(Waits::BOUNDS) {
            *count += u64::from(ns <= bound);
        }
    }
}

/// A value of the moment, with its labels as `{a="b"}` or nothing.
#[derive(Clone, Debug)]
pub struct Gauge {
    /// Name, without the prefix.
    pub name: &'static str,
    /// One line.
    pub help: &'static str,
    /// Labels and values, in the order in which they are shown.
    pub samples: Vec<(Vec<(&'static str, String)>, u64)>,
}

/// Writes counters and gauges as Prometheus text (`OpenMetrics`).
///
/// # Errors
/// What `out` answers.
pub fn write_prometheus(
    out: &mut impl Write,
    counters: &Counters,
    gauges: &[Gauge],
) -> fmt::Result {
    for (name, help, value) in counters.rows() {
        match name.strip_suffix("_ns") {
            Some(stem) => {
                head(out, &format!("{stem}_seconds"), "counter", help)?;
                let (s, ns) = (value / 1_000_000_000, value % 1_000_000_000);
                writeln!(out, "prezerod_{stem}_seconds_total {s}.{ns:09}")?;
            }
            None => {
                head(out, name, "counter", help)?;
                writeln!(out, "prezerod_{name}_total {value}")?;
            }
        }
    }
    head(out, "refusals", "counter", "requests that were refused")?;
    for reason in Reason::ALL {
        let count = counters.refused.get(&reason).copied().unwrap_or(0);
        writeln!(out, "prezerod_refusals_total{{reason=\"{}\"}} {count}", reason.name())?;
    }
    let waits = &counters.waits;
    head(out, "wait_seconds", "histogram", "time from a request to its lease")?;
    for (count, bound) in waits.counts.iter().zip(Waits::BOUNDS) {
        let bound = bound as f64 / 1e9;
        writeln!(out, "prezerod_wait_seconds_bucket{{le=\"{bound}\"}} {count}")?;
    }
    writeln!(out, "prezerod_wait_seconds_bucket{{le=\"+Inf\"}} {}", waits.count)?;
    writeln!(out, "prezerod_wait_seconds_sum {:e}", waits.sum_ns as f64 / 1e9)?;
    writeln!(out, "prezerod_wait_seconds_count {}", waits.count)?;
    type Value = fn(&OfTenant) -> String;
    let seconds = |of: &OfTenant| {
        format!("{}.{:09}", of.waited_ns / 1_000_000_000, of.waited_ns % 1_000_000_000)
    };
    let of_tenants: [(&str, &str, Value); 4] = [
        ("tenant_hits", "leases served from stock at once, by tenant", |of| of.hits.to_string()),
        ("tenant_misses", "requests for which nothing was ready, by tenant", |of| {
            of.misses.to_string()
        }),
        ("tenant_refusals", "requests that were refused, by tenant", |of| of.refused.to_string()),
        ("tenant_wait_seconds", "time from requests to their leases, by tenant", seconds),
    ];
    for (name, help, value) in of_tenants {
        head(out, name, "counter", help)?;
        for (tenant, of) in &counters.tenants {
            let (tenant, value) = (quoted(tenant), value(of));
            writeln!(out, "prezerod_{name}_total{{tenant=\"{tenant}\"}} {value}")?;
        }
    }
    for gauge in gauges {
        head(out, gauge.name, "gauge", gauge.help)?;
        for (labels, value) in &gauge.samples {
            write!(out, "prezerod_{}", gauge.name)?;
            for (at, (key, label)) in labels.iter().enumerate() {
                let open = if at == 0 { '{' } else { ',' };
                write!(out, "{open}{key}=\"{}\"", quoted(label))?;
            }
            writeln!(out, "{} {value}", if labels.is_empty() { "" } else { "}" })?;
        }
    }
    out.write_str("# EOF\n")
}

/// As the value of a label.
fn quoted(label: &str) -> String {
    escape::lines(label).replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

fn head(out: &mut impl Write, name: &str, kind: &str, help: &str) -> fmt::Result {
    writeln!(out, "# TYPE prezerod_{name} {kind}\n# HELP prezerod_{name} {help}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rendered(counters: &Counters, gauges: &[Gauge]) -> String {
        let mut text = String::new();
        write_prometheus(&mut text, counters, gauges).unwrap();
        text
    }

    #[test]
    fn every_counter_is_there_once_with_its_value_and_unit() {
        let counters = Counters { hits: 3, made_cpu_ns: 1_500_000_000, ..Counters::default() };
        let text = rendered(&counters, &[]);
        for (name, ..) in counters.rows() {
            let stem =
                name.strip_suffix("_ns").map_or(name.into(), |stem| format!("{stem}_seconds"));
            assert_eq!(text.matches(&format!("\nprezerod_{stem}_total ")).count(), 1, "{name}");
        }
        assert!(text.contains("\nprezerod_lease_hits_total 3\n"));
        assert!(text.contains("\nprezerod_made_cpu_seconds_total 1.500000000\n"));
        assert!(text.ends_with("\n# EOF\n"));
    }

    #[test]
    fn refusals_and_waits_are_counted_where_they_belong() {
        let mut counters = Counters::default();
        counters.refuse(Reason::Quota);
        counters.refuse(Reason::Quota);
        counters.waits.add(50_000);
        counters.waits.add(2_000_000_000);
        let text = rendered(&counters, &[]);
        assert!(text.contains("refusals_total{reason=\"quota\"} 2\n"));
        assert!(text.contains("refusals_total{reason=\"host\"} 0\n"));
        assert!(text.contains("wait_seconds_bucket{le=\"0.0001\"} 1\n"));
        assert!(text.contains("wait_seconds_bucket{le=\"1\"} 1\n"));
        assert!(text.contains("wait_seconds_bucket{le=\"10\"} 2\n"));
        assert!(text.contains("wait_seconds_bucket{le=\"+Inf\"} 2\n"));
    }

    #[test]
    fn tenants_are_told_apart_as_long_as_they_are_few() {
        let mut counters = Counters::default();
        counters.hit("a\"");
        counters.miss("a\"");
        counters.waited("a\"", 2_500_000_000);
        (0..2 * MOST_TENANTS).for_each(|nth| counters.hit(&format!("t{nth}")));
        let text = rendered(&counters, &[]);
        assert!(text.contains("\nprezerod_tenant_hits_total{tenant=\"a\\\"\"} 1\n"), "{text}");
        assert!(text.contains("tenant_misses_total{tenant=\"a\\\"\"} 1\n"));
        assert!(text.contains("tenant_wait_seconds_total{tenant=\"a\\\"\"} 2.500000000\n"));
        let others = format!("tenant_hits_total{{tenant=\"{OTHERS}\"}} {}\n", MOST_TENANTS + 1);
        assert!(text.contains(&others), "{text}");
        assert_eq!(text.matches("tenant_hits_total{").count(), MOST_TENANTS + 1);
        let hits = counters.tenants.values().map(|of| of.hits).sum::<u64>();
        assert_eq!(hits, counters.hits);
    }

    #[test]
    fn labels_are_quoted() {
        let samples = vec![(vec![("tenant", "a\"\\\n\u{202e}".into()), ("node", "0".into())], 7)];
        let text =
            rendered(&Counters::default(), &[Gauge { name: "held_bytes", help: "h", samples }]);
        assert!(
            text.contains(
                "\nprezerod_held_bytes{tenant=\"a\\\"\\\\\\n\\\\u{202e}\",node=\"0\"} 7\n"
            )
        );
    }
}
