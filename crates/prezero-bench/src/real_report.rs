//! What `prezero bench real` has measured, and what each program comes to.

use std::hash::{DefaultHasher, Hasher};
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use serde::{Deserialize, Serialize};

use super::grid_report::number;
use super::machine::Machine;
use super::peers::{BARE, Field, GLIBC, PREZERO};
use super::real_programs::{PROGRAMS, Program};
use super::real_run::Run;
use super::samples::{Change, Judged, Spread, judge};
use super::{output, report};

/// How much more than glibc's wall time prezero may take; where that is out of reach, more than that
/// of glibc behind a library that does nothing.
pub const SLOWER: f64 = 0.01;
/// Fewer pairs than that say nothing of their noise.
const FEW: usize = 5;
/// The largest that prezero's peak may be, of the smallest peer's.
pub const LARGEST: f64 = 1.10;
/// What a program that zeroes much gains, of glibc's wall time over prezero's.
const GAIN: f64 = 1.2;
/// And how much that is, in bytes of ZERO requests for each second under glibc: a
/// 4 KiB fault costs some 1.5 us, so at this rate a fifth of the time goes there, and with
/// less no allocator can gain as much.
const MUCH: f64 = 512.0 * 1048576.0;

/// Everything measured.
#[derive(Debug, Serialize, Deserialize)]
pub struct Report {
    /// `real`.
    pub benchmark: String,
    /// Taken on.
    pub machine: Machine,
    /// Taken with.
    #[serde(flatten)]
    pub field: Field,
    /// Which build of ours: two that differ are told apart.
    #[serde(default)]
    pub build: String,
    /// Of each program under each allocator, before those in pairs; with those of earlier runs, the most.
    pub runs: usize,
    /// For the pairs of each program; with those of earlier runs, the most.
    #[serde(default)]
    pub pairs_s: u64,
    /// What sort and ripgrep read.
    pub text_mib: u64,
    /// One for each program that is here.
    pub programs: Vec<Measured>,
    /// Programs that are not, and what to install.
    pub missing: Vec<(String, String)>,
}

impl Report {
    /// Of nothing yet, on this machine.
    ///
    /// # Errors
    /// There is no such peer, or our library cannot be read.
    pub fn begin(peers: &[String], text_mib: u64) -> Result<Report> {
        let field = Field::find(peers)?;
        let ours = field.allocators.iter().find(|each| each.is_prezero());
        let build = ours.and_then(|ours| ours.library.as_deref()).map(build_of).transpose()?;
        Ok(Report {
            benchmark: "real".into(),
            machine: Machine::here(),
            field,
            build: build.unwrap_or_default(),
            runs: 0,
            pairs_s: 0,
            text_mib,
            programs: vec![],
            missing: vec![],
        })
    }

    /// With the runs of an earlier report, which ours of now are added to.
    ///
    /// # Errors
    /// It cannot be read, or is of something else: then its runs say nothing of ours.
    pub fn go_on_from(&mut self, file: &Path) -> Result<()> {
        let json = report::read(file)?;
        let named = || format!("--onto {}", file.display());
        let settings = serde_json::to_value(output::settings_here().0)?;
        let other_settings = json["settings"] != settings;
        ensure!(
            json["benchmark"] == "real",
            "{}: of another benchmark; give one of `real`",
            named()
        );
        let earlier: Report = serde_json::from_value(json).with_context(named)?;
        let differs = [
            ("another machine, kernel or THP setting", !self.machine.is_like(&earlier.machine)),
            ("another build of prezero", self.build != earlier.build),
            ("other settings of prezero", other_settings),
            ("other peers", !self.peers_named().eq(earlier.peers_named())),
            ("a text of another size", self.text_mib != earlier.text_mib),
        ];
        if let Some((what, _)) = differs.iter().find(|(_, differs)| *differs) {
            bail!("{}: taken with {what}; its runs cannot count here: leave --onto out", named());
        }
        (self.runs, self.pairs_s) = (earlier.runs, earlier.pairs_s);
        (self.programs, self.missing) = (earlier.programs, earlier.missing);
        Ok(())
    }

    /// Who was measured, by name and version.
    fn peers_named(&self) -> impl Iterator<Item = (&str, &str)> {
        let all = self.field.allocators.iter().filter(|each| each.name != BARE);
        all.map(|each| (each.name.as_str(), each.version.as_str()))
    }

    /// What is here of a program, to be added to.
    pub fn take(&mut self, program: &str) -> Option<Measured> {
        let at = self.programs.iter().position(|each| each.program == program)?;
        Some(self.programs.remove(at))
    }

    /// A program, in its place.
    pub fn put(&mut self, measured: Measured) {
        self.missing.retain(|(name, _)| *name != measured.program);
        self.programs.push(measured);
        let place = |name: &str| PROGRAMS.iter().position(|program| program.name == name);
        self.programs.sort_by_key(|each| place(&each.program));
    }

    /// A program that is not here, and what to install.
    pub fn miss(&mut self, program: &str, mend: String) {
        self.missing.retain(|(name, _)| name != program);
        self.missing.push((program.into(), mend));
    }
}

/// A name for what is in a file, to tell it from another.
fn build_of(library: &Path) -> Result<String> {
    let bytes = std::fs::read(library).with_context(|| library.display().to_string())?;
    let mut hasher = DefaultHasher::new();
    hasher.write(&bytes);
    Ok(format!("{:016x}", hasher.finish()))
}

/// One program.
#[derive(Debug, Serialize, Deserialize)]
pub struct Measured {
    /// Its row.
    pub program: String,
    /// What it does.
    pub about: String,
    /// In the field's order.
    pub results: Vec<Cost>,
    /// Prezero's counters of its first run, which is not counted; `null` if it wrote none.
    pub stats: serde_json::Value,
}

/// One program under one allocator.
#[derive(Debug, Serialize, Deserialize)]
pub struct Cost {
    /// Which.
    pub allocator: String,
    /// From start to end.
    pub wall_s: Spread,
    /// User and system, waited-for children included.
    pub cpu_s: Spread,
    /// Peak resident, of the largest process.
    pub rss_mib: Spread,
}

impl Cost {
    fn of(allocator: &str, runs: &[Run]) -> Option<Cost> {
        let spread = |value: fn(&Run) -> f64| Spread::of(runs.iter().map(value).collect());
        Some(Cost {
            allocator: allocator.into(),
            wall_s: spread(|run| run.wall_s)?,
            cpu_s: spread(|run| run.cpu_s)?,
            rss_mib: spread(|run| run.rss_mib)?,
        })
    }

    fn runs(&self) -> Vec<Run> {
        let both = self.wall_s.samples.iter().zip(&self.cpu_s.samples);
        let run = |((&wall_s, &cpu_s), &rss_mib)| Run { wall_s, cpu_s, rss_mib };
        both.zip(&self.rss_mib.samples).map(run).collect()
    }
}

/// Prezero against what is asked of it.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Verdict {
    /// Whether its wall time is above glibc's by more than it may.
    pub speed: Judged,
    /// And above that of glibc behind a library that does nothing; `None` if that did not run.
    pub limit: Option<Judged>,
    /// Its peak over the smallest peer's is not above the limit.
    pub small_enough: bool,
    /// Whether a program that zeroes much gains as much as asked; `None` if this one does not.
    pub gains: Option<Judged>,
}

impl Verdict {
    /// Of a program that is slower than glibc by more than it may, or that may be: whether that is so against
    /// glibc behind a library that does nothing, too.
    pub fn beyond_limit(&self) -> Option<Judged> {
        self.limit.filter(|_| self.speed != Judged::Within)
    }
}

impl Measured {
    /// Of the runs under each allocator, in the field's order.
    pub fn of_runs<'a>(
        program: &Program,
        runs: impl Iterator<Item = (&'a str, Vec<Run>)>,
        stats: serde_json::Value,
    ) -> Measured {
        Measured {
            program: program.name.into(),
            about: program.about.into(),
            results: runs.filter_map(|(allocator, runs)| Cost::of(allocator, &runs)).collect(),
            stats,
        }
    }

    /// All runs under one allocator, in the order taken.
    pub fn runs_under(&self, allocator: &str) -> Vec<Run> {
        self.of(allocator).map_or(vec![], Cost::runs)
    }

    /// The results of one allocator.
    pub fn of(&self, allocator: &str) -> Option<&Cost> {
        self.results.iter().find(|cost| cost.allocator == allocator)
    }

    fn peers(&self) -> impl Iterator<Item = &Cost> {
        self.results.iter().filter(|cost| ![PREZERO, BARE].contains(&cost.allocator.as_str()))
    }

    /// The peer with the least of something.
    pub fn best(&self, value: fn(&Cost) -> f64) -> Option<&Cost> {
        self.peers().min_by(|a, b| value(a).total_cmp(&value(b)))
    }

    /// The fastest peer whose peak is at most `times` the smallest peer's, if that is faster
    /// than glibc: how many times, and its peak over the smallest.
    pub fn fastest_within(&self, times: f64) -> Option<(&Cost, f64, f64)> {
        let glibc = self.of(GLIBC)?.wall_s.median;
        let least = self.best(|cost| cost.rss_mib.median)?.rss_mib.median;
        let fits =
            |cost: &&Cost| cost.rss_mib.median <= times * least && cost.wall_s.median < glibc;
        let fitting = self.peers().filter(fits);
        let best = fitting.min_by(|a, b| a.wall_s.median.total_cmp(&b.wall_s.median))?;
        Some((best, glibc / best.wall_s.median, best.rss_mib.median / least))
    }

    /// How much more of something one allocator takes than another.
    pub fn change(&self, of: &str, over: &str, value: fn(&Cost) -> &Spread) -> Option<Change> {
        Change::of_runs(value(self.of(of)?), value(self.of(over)?))
    }

    /// A counter of prezero's; 0 if there is none.
    pub fn counter(&self, name: &str) -> u64 {
        number(&self.stats, name).unwrap_or(0)
    }

    /// Bytes of ZERO requests.
    pub fn zeroed(&self) -> u64 {
        ["hit_bytes", "miss_bytes", "served_absent_bytes"]
            .map(|name| self.counter(name))
            .iter()
            .sum()
    }

    /// `None` unless prezero and glibc ran.
    pub fn verdict(&self) -> Option<Verdict> {
        let (ours, glibc) = (self.of(PREZERO)?, self.of(GLIBC)?);
        let smallest = self.best(|cost| cost.rss_mib.median)?;
        let pairs = ours.wall_s.samples.len();
        let against = |other, bound| {
            let change = self.change(PREZERO, other, |cost| &cost.wall_s).filter(|_| pairs >= FEW);
            change.map_or(Judged::Unclear, |change| judge(change, bound))
        };
        let much = self.zeroed() as f64 >= MUCH * glibc.wall_s.median;
        Some(Verdict {
            speed: against(GLIBC, SLOWER),
            limit: self.of(BARE).map(|_| against(BARE, SLOWER)),
            small_enough: ours.rss_mib.median <= LARGEST * smallest.rss_mib.median,
            gains: much.then(|| against(GLIBC, 1.0 / GAIN - 1.0)),
        })
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;

    /// Wall seconds and peak MiB of allocators, and bytes of ZERO requests that were hits.
    pub fn measured(results: &[(&str, f64, f64)], hit_bytes: u64) -> Measured {
        let one = |value| Spread::of(vec![value; FEW]).unwrap();
        let cost = |&(name, wall, rss): &(&str, f64, f64)| Cost {
            allocator: name.into(),
            wall_s: one(wall),
            cpu_s: one(1.5 * wall),
            rss_mib: one(rss),
        };
        Measured {
            program: "sort".into(),
            about: "sorts".into(),
            results: results.iter().map(cost).collect(),
            stats: serde_json::json!({"hit_bytes": hit_bytes}),
        }
    }

    #[test]
    fn speed_is_against_glibc_and_size_against_the_smallest_peer() {
        let peers = [(GLIBC, 1.0, 100.0), ("jemalloc", 0.5, 120.0)];
        let with = |wall, rss| {
            let all: Vec<_> = peers.into_iter().chain([(PREZERO, wall, rss)]).collect();
            measured(&all, 0).verdict().unwrap()
        };
        assert_eq!(
            with(1.009, 110.0),
            Verdict { speed: Judged::Within, limit: None, small_enough: true, gains: None }
        );
        assert_eq!(with(1.02, 110.0).speed, Judged::Beyond);
        assert!(!with(1.0, 111.0).small_enough);
    }

    /// Of nothing, by a build of that name, with a text of 96 MiB.
    fn report(build: &str) -> Report {
        Report { build: build.into(), ..Report::begin(&[GLIBC.into()], 96).unwrap() }
    }

    /// As a run writes it.
    fn written(report: &Report, name: &str) -> std::path::PathBuf {
        let file = std::env::temp_dir().join(format!("prezero-{name}-{}", std::process::id()));
        let mut json = serde_json::to_value(report).unwrap();
        json["settings"] = serde_json::to_value(output::settings_here().0).unwrap();
        std::fs::write(&file, json.to_string()).unwrap();
        file
    }

    #[test]
    fn a_report_goes_on_from_one_of_the_same_build_only() {
        let mut earlier = report("a");
        earlier.programs.push(measured(&[(GLIBC, 2.0, 1.0)], 0));
        earlier.runs = 5;
        let file = written(&earlier, "report");
        let refusal = report("b").go_on_from(&file).unwrap_err().to_string();
        assert!(refusal.contains("another build of prezero"), "{refusal}");
        earlier.machine.load += 1.0;
        earlier.machine.cpus += 1;
        let elsewhere = written(&earlier, "elsewhere");
        let refusal = report("a").go_on_from(&elsewhere).unwrap_err().to_string();
        assert!(refusal.contains("another machine"), "{refusal}");

        let mut later = report("a");
        later.go_on_from(&file).unwrap();
        assert_eq!(later.runs, 5);
        let walls: Vec<_> =
            later.programs[0].runs_under(GLIBC).iter().map(|run| run.wall_s).collect();
        assert_eq!(walls, [2.0; FEW]);
        for file in [file, elsewhere] {
            std::fs::remove_file(file).unwrap();
        }
    }

    #[test]
    fn a_program_is_measured_or_missing_and_stands_in_its_place() {
        let mut report = report("a");
        report.miss("sort", "apt-get install coreutils".into());
        report.put(Measured { program: "xz".into(), ..measured(&[], 0) });
        report.put(measured(&[], 0));
        let names: Vec<_> = report.programs.iter().map(|each| each.program.as_str()).collect();
        assert_eq!((names, report.missing.len()), (vec!["sort", "xz"], 0));
        assert!(report.take("sort").is_some() && report.take("sort").is_none());
    }

    #[test]
    fn a_library_that_does_nothing_is_no_peer_but_a_limit() {
        let with = |bare| {
            let all = [(GLIBC, 1.0, 100.0), (PREZERO, 1.05, 105.0), (BARE, bare, 90.0)];
            measured(&all, 0).verdict().unwrap()
        };
        assert!(with(1.045).small_enough, "the smallest peer is glibc");
        assert_eq!((with(1.045).speed, with(1.045).limit), (Judged::Beyond, Some(Judged::Within)));
        assert_eq!(with(1.0).limit, Some(Judged::Beyond));
    }

    #[test]
    fn noise_hides_on_which_side_of_the_limit_a_program_is() {
        let mut noisy = measured(&[(GLIBC, 1.0, 1.0), (PREZERO, 1.0, 1.0)], 0);
        let mut speed = |walls: &[f64]| {
            noisy.results[0].wall_s = Spread::of(vec![1.0; walls.len()]).unwrap();
            noisy.results[1].wall_s = Spread::of(walls.to_vec()).unwrap();
            noisy.verdict().unwrap().speed
        };
        assert_eq!(speed(&[0.9, 0.95, 1.0, 1.05, 1.1]), Judged::Unclear);
        assert_eq!(speed(&[1.0; FEW]), Judged::Within);
        assert_eq!(speed(&[1.0; FEW - 1]), Judged::Unclear, "too few");
    }

    #[test]
    fn only_a_program_that_zeroes_much_has_to_gain() {
        let run = |wall, hits| measured(&[(GLIBC, 2.0, 1.0), (PREZERO, wall, 1.0)], hits);
        assert_eq!(run(1.9, 2 << 30).verdict().unwrap().gains, Some(Judged::Beyond));
        assert_eq!(run(1.6, 2 << 30).verdict().unwrap().gains, Some(Judged::Within));
        assert_eq!(run(1.9, 1 << 20).verdict().unwrap().gains, None);
        assert_eq!(measured(&[(PREZERO, 1.0, 1.0)], 0).verdict(), None);
    }
}
