//! `prezero bench fleet`: the broker's rule of stock on many hosts in made-up time, beside simpler rules.
//!
//! No memory is made and no clock is read: each host is a simulation of [`fleet`](crate::fleet), played from one
//! request to the next. All rules see the same requests, and every request waits until it is served.
//! The figures are the same in every run.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use crate::fleet::simulation::Machine;
use crate::fleet::{Arrivals, MOST_DAYS, PATTERNS, RULES, Setting, Tally, Trace, play};
use anyhow::{Result, anyhow, ensure};
use prezero_host::Size;

use crate::told::{Better, Figure, Played, Progress, Sheet, chosen};

/// The command line of `prezero bench fleet`.
#[derive(clap::Args, Debug)]
#[command(after_help = "Example: prezero bench fleet --only poisson --hosts 10000")]
pub struct Fleet {
    /// Hosts, each with requests of its own
    #[arg(long, value_name = "N", default_value_t = 100)]
    hosts: u32,
    /// Days
    #[arg(long, value_name = "N", default_value_t = 7)]
    days: u32,
    /// Which requests: regular, poisson, diurnal, hourly, nightly, mixed, rush [all]
    #[arg(long, value_delimiter = ',', value_name = "PATTERN,...")]
    only: Vec<String>,
    /// Requests as they were: CSV with the columns host, seconds and size
    #[arg(long, value_name = "FILE", conflicts_with_all = ["only", "hosts", "days"])]
    trace: Option<PathBuf>,
    /// What a filler makes in a second
    #[arg(long, value_name = "SIZE", default_value = "8G")]
    pace: Size,
    /// Most stock of a host, as in prezerod's configuration
    #[arg(long, value_name = "SIZE", default_value = "64G")]
    limit: Size,
    /// Seconds for which prezerod learns from a request, as there
    #[arg(long, value_name = "SECONDS", default_value_t = 4500)]
    forget: u32,
    /// The number of each size that is kept without demand, as there
    #[arg(long, value_name = "N", default_value_t = 0)]
    stocked: u32,
}

impl Fleet {
    /// Plays all of it.
    ///
    /// # Errors
    /// A mistake in the command line, or in the trace.
    pub fn play<P: Progress>(&self, progress: &P) -> Result<Played> {
        let named = |size: Size| size.0 as u64;
        ensure!((1..=1_000_000).contains(&self.hosts), "--hosts {}: give 1 to 1000000", self.hosts);
        ensure!(
            (1..=MOST_DAYS).contains(&self.days),
            "--days {}: give 1 to {MOST_DAYS}",
            self.days
        );
        ensure!(named(self.pace) >= 2 << 20, "--pace {}: give 2M or more", self.pace);
        ensure!(self.forget > 0, "--forget 0: give seconds");
        let all: Vec<Arrivals> = match &self.trace {
            Some(file) => {
                let trace = Trace::read(file).map_err(|why| anyhow!("--trace {why}"))?;
                vec![Arrivals::of_trace(trace)]
            }
            None => chosen(&PATTERNS, |pattern| pattern.name, &self.only, "pattern")?
                .into_iter()
                .map(|pattern| Arrivals::of_pattern(pattern, self.hosts, self.days))
                .collect(),
        };
        let setting = Setting {
            machine: Machine { pace: named(self.pace), limit: named(self.limit) },
            forget: Duration::from_secs(self.forget.into()),
            keep: self.stocked.into(),
        };
        let mut notes = vec![format!(
            "{} made in a second, {} of stock at most, {} of each size kept, {} s learnt from",
            self.pace, self.limit, self.stocked, self.forget
        )];
        let mut sheet = Sheet::new("Fleet: what each rule of stock does", &["requests"])
        .note("hits: served at once; waits of all requests, those included")
        .note("of a host and day: GiB that lay ready, times hours; GiB made and given back unused");
        progress.expect(all.len() * RULES.len());
        'all: for arrivals in &all {
            let began = Instant::now();
            for rule in &RULES {
                if progress.step(&format!("fleet: {}, {}", arrivals.name, rule.name)).is_err() {
                    break 'all;
                }
                let tally = play(arrivals, rule, &setting, P::interrupted);
                sheet.extend(figures(rule.name, &arrivals.name, &tally));
                if rule.name == RULES[0].name {
                    sheet.notes.push(format!(
                        "{}: {}; {} requests to {} hosts",
                        arrivals.name,
                        arrivals.about,
                        tally.requests(),
                        arrivals.hosts
                    ));
                }
            }
            let seconds = began.elapsed().as_secs_f64();
            notes.push(format!("{}: played in {seconds:.1} s", arrivals.name));
        }
        Ok((notes, vec![sheet]))
    }
}

/// What a rule came to.
fn figures(rule: &str, arrivals: &str, tally: &Tally) -> Vec<Figure> {
    let days = tally.length_ns / (24.0 * 3600e9);
    let gib = |bytes: f64| bytes / f64::from(1 << 30);
    let of = |name, unit, value| Figure::new(rule, name, unit, value).case(&[arrivals]);
    vec![
        of("hits", "%", 100.0 * tally.hits as f64 / tally.requests() as f64).better(Better::More),
        of("median", "ms", tally.wait_ns(0.5) as f64 / 1e6),
        of("p99", "ms", tally.wait_ns(0.99) as f64 / 1e6),
        of("idle", "GiB h", gib(tally.ready) / 3600e9 / days),
        of("in vain", "GiB", gib(tally.vain as f64) / days),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_the_same_in_every_run_and_of_a_host_and_day() {
        let pattern = &PATTERNS[0];
        let figures = |hosts, days| {
            let arrivals = Arrivals::of_pattern(pattern, hosts, days);
            let machine = Machine { pace: 8 << 30, limit: 64 << 30 };
            let setting = Setting { machine, forget: Duration::from_secs(4500), keep: 0 };
            let tally = play(&arrivals, &RULES[0], &setting, || false);
            figures(RULES[0].name, &arrivals.name, &tally)
        };
        assert_eq!(figures(3, 2), figures(3, 2));
        let idle = |hosts, days| figures(hosts, days)[3].value;
        // One of 2 GiB lies ready nearly always.
        assert!((44.0..=48.0).contains(&idle(1, 7)), "{}", idle(1, 7));
        assert!((idle(4, 7) / idle(1, 7) - 1.0).abs() < 0.05);
    }
}
