//! `prezero bench start`: programs that start with leased memory, against each one's own way.
//!
//! QEMU until its monitor greets, and until its guest has touched all of its memory, a JVM that touches its heap until it ends, DPDK's testpmd until it has
//! ended, memcached until it answers. Every way of a program has its turn in each round, in an order
//! that chance made: none always follows the one that leaves the most to clean up. A lease lies
//! ready before each turn, as it would on a host that had some idle time. No start has a filler
//! beside it. All come after the same pause, since a start that follows at once finds the CPU
//! awake. `prezero claim` is part of what is timed.
//!
//! First with transparent huge pages, then with pages of a pool, if it has them or
//! `--reserve` may reserve them; DPDK has no other.

mod guest;
mod ways;

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use prezero::Size;
use prezero_cli::{companion, program};
use prezerod::protocol::Backing;
use ways::{Base, Contest, Started, Way, jvm, memcached, qemu, way, words};

use crate::broker::{Broker, HUGE, Reserved, backings, ms, warm};
use crate::figure::{Across, Case, Figure, Report, Sheet};
use crate::peers::Field;
use crate::progress::{self, kept, step};
use crate::scratch::Scratch;

/// A guest with a lease should start no slower than so, against one without any memory ready.
const OF_BARE: f64 = 1.0 / 1.1;

/// Longest that a program may take to be ready.
const PATIENCE: Duration = Duration::from_secs(60);
/// Before each start.
const PAUSE: Duration = Duration::from_millis(100);
/// Between two attempts to reach a server.
const ATTEMPT: Duration = Duration::from_micros(200);

/// The command line of `prezero bench start`.
#[derive(clap::Args)]
#[command(after_help = "Example: prezero bench start --runs 5")]
pub struct Start {
    /// Rounds, 3 or more
    #[arg(long, value_name = "N", default_value_t = 7)]
    runs: usize,
    /// Memory of QEMU and of the JVM; the guest that touches all, DPDK and memcached have half of it
    #[arg(long, value_name = "SIZE", default_value = "4G")]
    size: Size,
    /// Which programs: qemu, guest, jvm, dpdk, memcached [all]
    #[arg(long, value_name = "NAME,...", value_delimiter = ',',
          value_parser = ["qemu", "guest", "jvm", "dpdk", "memcached"])]
    only: Vec<String>,
    /// Reserve the hugetlb pages that this takes, and give them back at the end (as root)
    #[arg(long)]
    reserve: bool,
}

impl Case for Start {
    fn measure(&self) -> Result<Report> {
        ensure!(self.runs >= 3, "--runs {}: too few; give 3 or more", self.runs);
        let bytes = self.size.0 as u64;
        ensure!(
            bytes >= 256 << 20 && bytes.is_multiple_of(2 * HUGE),
            "--size {}: give 256M or more, a multiple of 4M",
            self.size
        );
        let mut report = Report::here("start", Field::none());
        warm(bytes).context("warming: no memory of that size; give a smaller --size")?;
        let mut sheet =
            Sheet::new("Starts: a program until it is ready", &["program", "memory"], Across::Name)
                .note(format!(
                    "prezero claim is part of what is timed; {} rounds, interleaved, medians",
                    self.runs
                ));
        let scratch = Scratch::new()?;
        let kernel = scratch.file("kernel");
        guest::write(&kernel)?;
        let of = |name: &str| usize::from(self.wants(name));
        let contests = 2 * (of("qemu") + of("guest") + of("jvm") + of("memcached")) + of("dpdk");
        progress::expect(contests * self.runs);
        'backings: for backing in [Backing::Thp, Backing::Hugetlb] {
            // One lease ready, and for the rival as much and an eighth: a JVM's tables take large
            // pages, too, and one that finds too few of them goes without any.
            let pages = (2 * bytes + bytes / 8) / HUGE + 64;
            let pool = backing == Backing::Hugetlb && self.reserve;
            let reserved = pool.then(|| Reserved::new(pages)).transpose();
            let _reserved = match reserved {
                Ok(reserved) => reserved,
                // The figures so far are kept.
                Err(error) => {
                    report.notes.push(format!("left out: {}: {error:#}", backing.name()));
                    continue;
                }
            };
            let mut why = vec![];
            if !backings(pages * HUGE, &mut why).contains(&backing) {
                report.notes.extend(why);
                continue;
            }
            let contests = [
                ("qemu", qemu(bytes, backing)),
                ("guest", ways::guest((bytes / 2).min(guest::MOST), backing, &kernel)),
                ("jvm", jvm(bytes, backing)),
                ("memcached", memcached(bytes / 2, backing, &scratch)),
            ];
            for (_, contest) in contests.iter().filter(|(name, _)| self.wants(name)) {
                if kept(self.contest(contest, backing, &mut sheet))?.is_none() {
                    break 'backings;
                }
            }
            if backing == Backing::Hugetlb && self.wants("dpdk") {
                kept(self.dpdk(bytes / 2, &scratch, &mut sheet))?;
            }
        }
        report.sheets.push(sheet);
        Ok(report)
    }
}

impl Start {
    fn wants(&self, program: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|only| only == program)
    }

    fn contest(&self, contest: &Contest, backing: Backing, sheet: &mut Sheet) -> Result<()> {
        if !is_there(&contest.ways[0].command[0]) {
            sheet.notes.push(format!("left out: {}: it is not installed", contest.program));
            return Ok(());
        }
        let broker = Broker::start(backing, contest.bytes, 1)?;
        let before = |_: &Way| broker.wait_for(1);
        self.rounds(contest, sheet, before, &broker.socket())
    }

    /// Files for DPDK, made before its turn and removed after it.
    fn dpdk(&self, bytes: u64, scratch: &Scratch, sheet: &mut Sheet) -> Result<()> {
        let dir = scratch.file("huge");
        std::fs::create_dir_all(&dir)?;
        let mounted = Mounted::on(&dir);
        if !is_there("dpdk-testpmd") || mounted.is_none() {
            sheet.notes.push("left out: dpdk-testpmd: it is not installed, or no root".into());
            return Ok(());
        }
        let (shown, mib) = (dir.display(), bytes >> 20);
        // Two logical cores, which it wants, on one CPU if there is one only.
        let eal = format!(
            "dpdk-testpmd --no-pci --no-telemetry --lcores 0@0,1@0 --huge-dir {shown} -m {mib} \
             --vdev=net_null0"
        );
        let own = |name: &str, base, options: &str| Way {
            input: "quit\n",
            ..way(name, base, &words(&format!("{eal} {options} -- -i --total-num-mbufs=4096")))
        };
        let contest = Contest {
            program: "DPDK testpmd",
            bytes,
            backing: Backing::Hugetlb,
            started: Started::Ends,
            ways: vec![
                own("its own pages", Base::Own, "--huge-unlink=always"),
                own("placed", Base::Ready, "--huge-unlink=never"),
            ],
        };
        let clear = || -> Result<()> {
            for file in std::fs::read_dir(&dir)? {
                std::fs::remove_file(file?.path())?;
            }
            Ok(())
        };
        let before = |way: &Way| -> Result<()> {
            clear()?;
            if way.base != Base::Ready {
                return Ok(());
            }
            let mut place = Command::new(companion::find(companion::PREZERO)?);
            place.args(["place", "dpdk"]).arg(format!("{mib}M")).arg("--dir").arg(&dir);
            ensure!(place.stdout(Stdio::null()).status()?.success(), "prezero place dpdk failed");
            Ok(())
        };
        self.rounds(&contest, sheet, before, Path::new(""))?;
        clear()
    }

    fn rounds(
        &self,
        contest: &Contest,
        sheet: &mut Sheet,
        before: impl Fn(&Way) -> Result<()>,
        socket: &Path,
    ) -> Result<()> {
        let mut times = vec![vec![]; contest.ways.len()];
        for round in 0..self.runs {
            step(&format!("start: {}, round {} of {}", contest.program, round + 1, self.runs))?;
            for which in shuffled(contest.ways.len(), round as u64) {
                let way = &contest.ways[which];
                before(way)?;
                std::thread::sleep(PAUSE);
                let time = timed(way, &contest.started, socket);
                times[which]
                    .push(time.with_context(|| format!("{}, {}", contest.program, way.name))?);
            }
        }
        sheet.extend(figures(contest, times));
        Ok(())
    }
}

/// What each way took, against the program without any memory ready and against its own ways.
fn figures(contest: &Contest, times: Vec<Vec<f64>>) -> Vec<Figure> {
    let memory = format!("{}, {}", Size(contest.bytes as usize), contest.backing.name());
    let each = contest.ways.iter().zip(times).filter_map(|(way, times)| {
        let figure = Figure::of_samples(&way.name, "start", "ms", times)?;
        let figure = figure.case(&[contest.program, &memory]);
        Some((way.base, figure))
    });
    let all: Vec<(Base, Figure)> = each.collect();
    let fastest = |base: Base| {
        let of_base = all.iter().filter(move |(each, _)| *each == base);
        of_base.min_by(|a, b| a.1.value.total_cmp(&b.1.value)).map(|(_, figure)| figure)
    };
    let compared = |(base, figure): &(Base, Figure)| {
        let rivals = [("bare", Base::Bare), ("launched", Base::Launched), ("own", Base::Own)];
        let rivals =
            rivals.into_iter().filter(|_| *base == Base::Ready).filter_map(|(what, rival)| {
                let against = figure.against(what, fastest(rival)?);
                let is_bound = what == "bare" && contest.program == "QEMU";
                Some(if is_bound { against.wanted(OF_BARE) } else { against })
            });
        figure.clone().and(rivals.collect::<Vec<_>>())
    };
    all.iter().map(compared).collect()
}

/// The numbers below this in an order of chance, the same for the same round (splitmix64).
fn shuffled(count: usize, round: u64) -> Vec<usize> {
    let mut state = round;
    let mut next = || {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    };
    let mut all: Vec<usize> = (0..count).collect();
    for last in (1..count).rev() {
        all.swap(last, (next() % (last as u64 + 1)) as usize);
    }
    all
}

fn is_there(program: &str) -> bool {
    program::find(program.as_ref(), std::env::var_os("PATH")).is_ok()
}

/// ms until it has started. It is ended then.
fn timed(way: &Way, started: &Started, socket: &Path) -> Result<f64> {
    let mut command = if way.claim.is_empty() {
        let mut command = Command::new(&way.command[0]);
        command.args(&way.command[1..]);
        command
    } else {
        let mut command = Command::new(companion::find(companion::PREZERO)?);
        command.args(&way.claim).args(&way.command).env("PREZERO_SOCKET", socket);
        command
    };
    if let Started::Answers(path) = started {
        let _ = std::fs::remove_file(path);
    }
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    let began = Instant::now();
    let mut program = Running(command.spawn()?);
    if !way.input.is_empty() {
        program.0.stdin.as_mut().context("stdin")?.write_all(way.input.as_bytes())?;
    }
    let mut output = BufReader::new(program.0.stdout.take().context("stdout")?);
    match started {
        Started::Says => {
            let mut line = String::new();
            output.read_line(&mut line)?;
            ensure!(!line.is_empty(), "it ended without a word");
        }
        Started::Ends => {
            let mut all = String::new();
            output.read_to_string(&mut all)?;
            let status = program.0.wait()?;
            ensure!(status.success(), "it ended with {status}");
        }
        Started::Answers(path) => answers(path, &mut program.0)?,
    }
    Ok(ms(began))
}

/// Asks memcached for its version until it tells.
fn answers(path: &Path, program: &mut Child) -> Result<()> {
    let began = Instant::now();
    loop {
        if let Ok(mut peer) = UnixStream::connect(path) {
            peer.write_all(b"version\r\n")?;
            let mut answer = [0u8; 7];
            peer.read_exact(&mut answer)?;
            ensure!(&answer == b"VERSION", "it answered something else");
            return Ok(());
        }
        if let Some(status) = program.try_wait()? {
            bail!("it ended with {status}");
        }
        ensure!(began.elapsed() < PATIENCE, "it does not answer");
        std::thread::sleep(ATTEMPT);
    }
}

/// A program, ended when dropped.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A hugetlbfs, unmounted when dropped.
struct Mounted(PathBuf);

impl Mounted {
    fn on(dir: &Path) -> Option<Mounted> {
        let mut mount = Command::new("mount");
        mount.args(["-t", "hugetlbfs", "-o", "pagesize=2M", "none"]).arg(dir);
        let mounted = mount.stderr(Stdio::null()).status().is_ok_and(|status| status.success());
        mounted.then(|| Mounted(dir.to_owned()))
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.0).status();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_way_has_its_turn_and_none_always_the_same_before_it() {
        let mut before = std::collections::BTreeMap::<(usize, usize), usize>::new();
        for round in 0..200 {
            let order = shuffled(5, round);
            let mut sorted = order.clone();
            sorted.sort_unstable();
            assert_eq!(sorted, [0, 1, 2, 3, 4]);
            for pair in order.windows(2) {
                *before.entry((pair[0], pair[1])).or_default() += 1;
            }
        }
        // 20 pairs, 40 times each by chance.
        assert_eq!(before.len(), 20);
        assert!(before.values().all(|times| (15..=70).contains(times)), "{before:?}");
        assert_eq!((shuffled(1, 7), shuffled(0, 7)), (vec![0], vec![]));
    }

    #[test]
    fn a_ready_lease_is_held_against_the_fastest_of_each_kind() {
        let contest = Contest {
            program: "QEMU",
            bytes: 1 << 30,
            backing: Backing::Thp,
            started: Started::Ends,
            ways: vec![
                way("bare", Base::Bare, &[]),
                way("prealloc, 1 thread", Base::Own, &[]),
                way("prealloc, 2 threads", Base::Own, &[]),
                way("lease, thp", Base::Ready, &[]),
            ],
        };
        let all = figures(&contest, vec![vec![90.0], vec![400.0], vec![300.0], vec![100.0]]);
        let told: Vec<_> =
            all[3].against.iter().map(|it| (&*it.what, &*it.peer, it.times, it.wanted)).collect();
        assert_eq!(
            told,
            [("bare", "bare", 0.9, Some(OF_BARE)), ("own", "prealloc, 2 threads", 3.0, None)]
        );
        assert!(all[..3].iter().all(|figure| figure.against.is_empty()));
    }
}
