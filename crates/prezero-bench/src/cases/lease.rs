//! `prezero bench lease`: memory from prezerod against what a client does without it.
//!
//! Each round asks for so much in 2 MiB pages and counts from the request until all of it is
//! mapped and written once a page: a lease that lies ready; the client's own hugetlb pages,
//! populated in one call; transparent huge pages, populated in one call. The three take turns
//! in one process, on memory that the host has backed before, and no broker fills meanwhile. The
//! broker makes each lease just before its turn, and that is not counted here but shown: it is the
//! price, paid while idle.
//!
//! The broker is one of its own, started for this; hugetlb pages are reserved for it and for
//! its rival with `--reserve`, and given back.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use prezero::Size;
use prezerod::client::Client;
use prezerod::protocol::{Backing, Page, Want};

use crate::broker::{Broker, HUGE, Reserved, backings, ms, own_hugetlb, own_thp, warm};
use crate::figure::{Across, Better, Case, Figure, Report, Sheet};
use crate::peers::Field;
use crate::progress::{self, Interrupted, kept, step};
use prezero_host::samples::{median, quantile};

/// What the design asks: times its rivals, and ms for each GiB.
const OVER_HUGETLB: f64 = 100.0;
const OVER_THP: f64 = 20.0;
const MS_PER_GIB: f64 = 1.0;
/// And of small leases: how many a second, and the ms within which 99 % come.
const A_SECOND: f64 = 1000.0;
const P99_MS: f64 = 2.0;
/// Fewer rounds say nothing of noise.
const LEAST: usize = 3;
/// Small leases: how many, and over how many connections.
const SMALL: u64 = 1000;
const CLIENTS: usize = 100;

/// The command line of `prezero bench lease`.
#[derive(clap::Args)]
#[command(after_help = "Example: prezero bench lease --sizes 1G --runs 5")]
pub struct Lease {
    /// Rounds of each size
    #[arg(long, value_name = "N", default_value_t = 15)]
    runs: usize,
    /// Sizes
    #[arg(long, value_delimiter = ',', value_name = "SIZE,...", default_value = "1G,2G,4G")]
    sizes: Vec<Size>,
    /// Reserve the hugetlb pages that this takes, and give them back at the end (as root)
    #[arg(long)]
    reserve: bool,
}

/// Ways to come by memory.
const OWN_HUGETLB: &str = "own hugetlb";
const OWN_THP: &str = "own THP";

fn lease_of(backing: Backing) -> &'static str {
    match backing {
        Backing::Hugetlb => "lease, hugetlb",
        Backing::Thp | Backing::Tmpfs => "lease, thp",
    }
}

impl Case for Lease {
    fn measure(&self) -> Result<Report> {
        ensure!(self.runs >= LEAST, "--runs {}: too few; give {LEAST} or more", self.runs);
        let sizes: Vec<u64> = self.sizes.iter().map(|size| size.0 as u64).collect();
        if let Some(bad) = sizes.iter().find(|&&size| size == 0 || !size.is_multiple_of(HUGE)) {
            bail!("--sizes {}: give multiples of 2M", Size(*bad as usize));
        }
        let mut report = Report::here("lease", Field::none());
        let mut sizes = sizes;
        let (largest, pages, _reserved) = loop {
            let largest = sizes.iter().copied().max().unwrap_or(0).max(SMALL * HUGE);
            // One lease ready, and as much for the rival.
            let pages = 2 * largest / HUGE + 64;
            match self.reserve.then(|| Reserved::new(pages)).transpose() {
                Ok(reserved) => break (largest, pages, reserved),
                // Smaller ones may fit.
                Err(error) if sizes.iter().any(|size| *size != largest) => {
                    report.notes.push(format!("left out: {}: {error:#}", Size(largest as usize)));
                    sizes.retain(|size| *size != largest);
                }
                Err(error) => return Err(error),
            }
        };
        let backings = backings(pages * HUGE, &mut report.notes);
        progress::expect(1 + sizes.len() * self.runs + backings.len());
        warm(largest).context("warming: no memory of that size; give smaller --sizes")?;
        let mut sheet =
            Sheet::new("Leases: a request until its last page is written", &["size"], Across::Name)
                .note(format!(
                    "written once in each 2 MiB page; {} rounds, interleaved, medians",
                    self.runs
                ));
        let mut failed = None;
        for bytes in sizes {
            let measured = self.size(bytes, &backings);
            let size = Size(bytes as usize);
            match measured {
                Err(error) if error.is::<Interrupted>() => break,
                // What was measured of other sizes stays.
                Err(error) => {
                    report.notes.push(format!("left out: {size}: {error:#}"));
                    failed.get_or_insert(error.context(format!("--sizes {size}")));
                }
                Ok((took, cut)) => {
                    report.notes.extend(cut.map(|why| format!("{size}: {why}")));
                    sheet.extend(figures(bytes, took));
                }
            }
        }
        if let Some(error) = failed.filter(|_| sheet.figures.is_empty()) {
            return Err(error);
        }
        let mut small = Sheet::new("Small leases, one after the other", &[], Across::Name)
            .note(format!("{SMALL} leases of 2M, over the next of {CLIENTS} connections each"));
        for &backing in &backings {
            match kept(small_leases(backing)) {
                Ok(figures) => small.extend(figures.unwrap_or_default()),
                Err(error) => report.notes.push(format!("left out: small leases: {error:#}")),
            }
        }
        report.sheets.extend([sheet, small]);
        Ok(report)
    }
}

impl Lease {
    /// What each round took, and why there are fewer than asked for.
    fn size(&self, bytes: u64, backings: &[Backing]) -> Result<(Took, Option<String>)> {
        let brokers: Vec<(Backing, Broker)> = backings
            .iter()
            .map(|&backing| Ok((backing, Broker::start(backing, bytes, 1)?)))
            .collect::<Result<_>>()?;
        rounds(self.runs, |round, Took { took, paid }| {
            step(&format!("lease: {}, round {}", Size(bytes as usize), round + 1))?;
            // No broker fills while the rivals have their turn. Each takes its memory twice, and
            // the second time counts: a guest's host may have taken memory that was free for long.
            wait_for_all(&brokers)?;
            if backings.contains(&Backing::Hugetlb) {
                own_hugetlb(bytes)?;
                note(took, OWN_HUGETLB, own_hugetlb(bytes)?);
            }
            own_thp(bytes)?;
            note(took, OWN_THP, own_thp(bytes)?);
            // The lease that is timed was made after what the rivals freed: a guest gives that
            // back to its host, and stumbles meanwhile.
            for (backing, broker) in &brokers {
                drop(broker.lease(bytes)?);
                broker.wait_for(1)?;
                let (ms, lease) = broker.lease(bytes)?;
                note(took, lease_of(*backing), ms);
                note(paid, lease_of(*backing), lease.granted.cost_ns as f64 / 1e6);
            }
            Ok(())
        })
    }
}

/// ms that each way took, and CPU time that the broker paid before.
#[derive(Clone, Default, Debug)]
struct Took {
    took: Vec<(&'static str, Vec<f64>)>,
    paid: Vec<(&'static str, Vec<f64>)>,
}

/// The rounds, or those before one that failed, and why: fewer than [`LEAST`] do not count.
fn rounds(
    runs: usize,
    mut round: impl FnMut(usize, &mut Took) -> Result<()>,
) -> Result<(Took, Option<String>)> {
    let mut all = Took::default();
    for nth in 0..runs {
        let before = all.clone();
        match round(nth, &mut all) {
            Err(error) if nth >= LEAST && !error.is::<Interrupted>() => {
                return Ok((before, Some(format!("{nth} rounds of {runs}: {error:#}"))));
            }
            other => other?,
        }
    }
    Ok((all, None))
}

/// What each way took, and the broker paid; leases are held against the other ways.
fn figures(bytes: u64, Took { took, paid }: Took) -> Vec<Figure> {
    let gib = bytes as f64 / f64::from(1 << 30);
    let size = Size(bytes as usize).to_string();
    let is_own = |who: &str| [OWN_HUGETLB, OWN_THP].contains(&who);
    let mut all = vec![];
    for (who, samples) in took {
        let a_gib = median(&samples).map(|ms| Figure::new(who, "a GiB", "ms", ms / gib));
        let figure = Figure::of_samples(who, "took", "ms", samples);
        let both = [figure, a_gib].into_iter().flatten();
        all.extend(both);
    }
    let of = |all: &[Figure], who: &str| {
        all.iter().find(|figure| figure.who == who && figure.name == "took").cloned()
    };
    let rivals = [(OWN_HUGETLB, OVER_HUGETLB), (OWN_THP, OVER_THP)];
    let rivals = rivals.map(|(who, wanted)| (of(&all, who), wanted));
    for lease in all.iter_mut().filter(|figure| !is_own(&figure.who)) {
        if lease.name == "a GiB" {
            lease.wanted = Some(MS_PER_GIB);
            continue;
        }
        for (rival, wanted) in &rivals {
            // A lease without a pool is compared with none.
            let same =
                |rival: &&Figure| rival.who == OWN_THP || lease.who == lease_of(Backing::Hugetlb);
            let against = rival.as_ref().filter(same);
            let against = against.map(|rival| lease.against(&rival.who, rival).wanted(*wanted));
            lease.against.extend(against);
        }
    }
    let paid = paid
        .into_iter()
        .filter_map(|(who, ms)| Figure::of_samples(who, "CPU of the broker", "ms", ms));
    all.extend(paid);
    all.into_iter().map(|figure| figure.case(&[&size])).collect()
}

/// Until a lease lies ready everywhere: then no broker fills.
fn wait_for_all(brokers: &[(Backing, Broker)]) -> Result<()> {
    brokers.iter().try_for_each(|(_, broker)| broker.wait_for(1))
}

fn note(all: &mut Vec<(&'static str, Vec<f64>)>, way: &'static str, ms: f64) {
    match all.iter_mut().find(|(other, _)| *other == way) {
        Some((_, samples)) => samples.push(ms),
        None => all.push((way, vec![ms])),
    }
}

/// Small leases one after the other, each over the next of all connections.
fn small_leases(backing: Backing) -> Result<Vec<Figure>> {
    step(&format!("lease: {SMALL} of 2M"))?;
    let broker = Broker::start(backing, HUGE, SMALL)?;
    let mut clients: Vec<Client> = (0..CLIENTS).map(|_| broker.connect()).collect::<Result<_>>()?;
    broker.wait_for(SMALL)?;
    let want = Want { bytes: HUGE, page: Page::Huge, node: None };
    let mut times = vec![];
    let began = Instant::now();
    for turn in 0..SMALL as usize {
        let asked = Instant::now();
        drop(clients[turn % CLIENTS].lease(want, Duration::ZERO)?);
        times.push(ms(asked));
    }
    let a_second = SMALL as f64 / began.elapsed().as_secs_f64();
    times.sort_by(f64::total_cmp);
    let at = |share| quantile(&times, share).unwrap_or(f64::NAN);
    let figure = |name, unit, value| Figure::new(lease_of(backing), name, unit, value);
    Ok(vec![
        figure("leases", "a second", a_second).better(Better::More).wanted(A_SECOND),
        figure("median", "ms", at(0.5)),
        figure("p99", "ms", at(0.99)).wanted(P99_MS),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_is_held_against_the_ways_without_a_broker() {
        let took = vec![(OWN_HUGETLB, vec![100.0]), (OWN_THP, vec![60.0])];
        let leases = [(lease_of(Backing::Hugetlb), vec![0.5]), (lease_of(Backing::Thp), vec![4.0])];
        let took = took.into_iter().chain(leases).collect();
        let all = figures(2 << 30, Took { took, paid: vec![] });
        let told = |who: &str| -> Vec<_> {
            let lease = all.iter().find(|each| each.who == who && each.name == "took").unwrap();
            lease.against.iter().map(|it| (it.peer.as_str(), it.times)).collect()
        };
        assert_eq!(told("lease, hugetlb"), [(OWN_HUGETLB, 200.0), (OWN_THP, 120.0)]);
        assert_eq!(told("lease, thp"), [(OWN_THP, 15.0)]);
        let a_gib =
            all.iter().find(|each| each.who == "lease, thp" && each.name == "a GiB").unwrap();
        assert_eq!(
            (a_gib.value, a_gib.wanted, &a_gib.of[..]),
            (2.0, Some(1.0), &["2G".to_string()][..])
        );
    }

    #[test]
    fn rounds_before_one_that_fails_are_kept_if_they_are_enough() {
        let fails_at = |bad: usize| {
            rounds(9, |nth, all| {
                note(&mut all.took, OWN_THP, nth as f64);
                ensure!(nth != bad, "no lease ready");
                Ok(())
            })
        };
        let (all, why) = fails_at(9).unwrap();
        assert_eq!((all.took[0].1.len(), why), (9, None));
        let (all, why) = fails_at(5).unwrap();
        assert_eq!(all.took[0].1, [0.0, 1.0, 2.0, 3.0, 4.0]);
        assert_eq!(why.unwrap(), "5 rounds of 9: no lease ready");
        assert!(fails_at(2).is_err());
        assert!(rounds(9, |_, _| Err(Interrupted.into())).is_err());
    }
}
