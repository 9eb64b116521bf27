//! `prezero bench start`: programs that start with leased memory, against each one's own way.
//!
//! QEMU until its monitor greets, a JVM that touches its heap until it ends, DPDK's testpmd until it has
//! ended, memcached until it answers. Every way of a program has its turn in each round, in an order
//! that chance made: none always follows the one that leaves the most to clean up. A lease lies
//! ready before each turn, as it would on a host that had some idle time: nobody's start has a filler beside it, and all come after the same pause, since one that
//! follows at once finds the CPU awake. `prezero claim` is part of what is timed.
//!
//! First with transparent huge pages, then with pages of a pool, if it has them or
//! `--reserve` may reserve them; DPDK has no other.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use prezero::Size;
use prezero_cli::{companion, program};
use prezerod::protocol::Backing;
use serde::Serialize;

use super::broker::{Broker, HUGE, Reserved, backings, ms, warm};
use super::machine::Machine;
use super::output::Output;
use super::progress::{self, kept, step};
use super::samples::Spread;
use super::scratch::Scratch;
use super::start_table::render;
use super::start_ways::{Base, Contest, Started, Way, jvm, memcached, qemu, way, words};

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
    #[command(flatten)]
    output: Output,
    /// Rounds, 3 or more
    #[arg(long, value_name = "N", default_value_t = 7)]
    runs: usize,
    /// Memory of the guest and of the JVM; DPDK and memcached have half of it
    #[arg(long, value_name = "SIZE", default_value = "4G")]
    size: Size,
    /// Which programs: qemu, jvm, dpdk, memcached [all]
    #[arg(long, value_name = "NAME,...", value_delimiter = ',', value_parser = ["qemu", "jvm", "dpdk", "memcached"])]
    only: Vec<String>,
    /// Reserve the hugetlb pages that this takes, and give them back at the end (as root)
    #[arg(long)]
    reserve: bool,
}

/// Everything that was measured.
#[derive(Debug, Serialize)]
pub struct Report {
    benchmark: &'static str,
    pub machine: Machine,
    pub runs: usize,
    pub rows: Vec<Row>,
    pub left_out: Vec<String>,
}

/// One way to start one program, ms.
#[derive(Debug, Serialize)]
pub struct Row {
    pub program: &'static str,
    pub bytes: u64,
    /// Of what the leases of its contest are made.
    pub pages: &'static str,
    pub way: String,
    /// Against which others are told.
    pub base: Base,
    pub ms: Spread,
}

impl Start {
    /// Measures and prints.
    pub fn run(&self) -> Result<()> {
        ensure!(self.runs >= 3, "--runs {}: too few; give 3 or more", self.runs);
        let bytes = self.size.0 as u64;
        ensure!(
            bytes >= 256 << 20 && bytes.is_multiple_of(2 * HUGE),
            "--size {}: give 256M or more, a multiple of 4M",
            self.size
        );
        let machine = Machine::here();
        warm(bytes).context("warming: no memory of that size; give a smaller --size")?;
        let mut report =
            Report { benchmark: "start", machine, runs: self.runs, rows: vec![], left_out: vec![] };
        let scratch = Scratch::new()?;
        let of = |name: &str| usize::from(self.wants(name));
        let contests = 2 * (of("qemu") + of("jvm") + of("memcached")) + of("dpdk");
        progress::expect(contests * self.runs);
        'backings: for backing in [Backing::Thp, Backing::Hugetlb] {
            // One lease ready, and for the rival as much and an eighth: a JVM's tables take large
            // pages, too, and one that finds too few of them goes without any.
            let pages = (2 * bytes + bytes / 8) / HUGE + 64;
            let pool = backing == Backing::Hugetlb && self.reserve;
            let reserved = pool.then(|| Reserved::new(pages)).transpose();
            let _reserved = match reserved {
                Ok(reserved) => reserved,
                // What was measured is kept.
                Err(error) => {
                    report.left_out.push(format!("{}: {error:#}", backing.name()));
                    continue;
                }
            };
            let (there, why) = backings(pages * HUGE);
            if !there.contains(&(backing, true)) {
                report.left_out.extend(why);
                continue;
            }
            let contests = [
                ("qemu", qemu(bytes, backing)),
                ("jvm", jvm(bytes, backing)),
                ("memcached", memcached(bytes / 2, backing, &scratch)),
            ];
            for (_, contest) in contests.iter().filter(|(name, _)| self.wants(name)) {
                if kept(self.contest(contest, backing, &mut report))?.is_none() {
                    break 'backings;
                }
            }
            if backing == Backing::Hugetlb && self.wants("dpdk") {
                kept(self.dpdk(bytes / 2, &scratch, &mut report))?;
            }
        }
        progress::end();
        self.output.put(&report, || render(&report))
    }

    fn wants(&self, program: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|only| only == program)
    }

    fn contest(&self, contest: &Contest, backing: Backing, report: &mut Report) -> Result<()> {
        if !is_there(&contest.ways[0].command[0]) {
            report.left_out.push(format!("{}: it is not installed", contest.program));
            return Ok(());
        }
        let broker = Broker::start(backing, contest.bytes, 1)?;
        let before = |_: &Way| broker.wait_for(1);
        self.rounds(contest, report, before, &broker.socket())
    }

    /// Files for DPDK, made before its turn and removed after it.
    fn dpdk(&self, bytes: u64, scratch: &Scratch, report: &mut Report) -> Result<()> {
        let dir = scratch.file("huge");
        std::fs::create_dir_all(&dir)?;
        let mounted = Mounted::on(&dir);
        if !is_there("dpdk-testpmd") || mounted.is_none() {
            report.left_out.push("dpdk-testpmd: it is not installed, or no root".into());
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
        self.rounds(&contest, report, before, Path::new(""))?;
        clear()
    }

    fn rounds(
        &self,
        contest: &Contest,
        report: &mut Report,
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
        for (way, times) in contest.ways.iter().zip(times) {
            report.rows.push(Row {
                program: contest.program,
                bytes: contest.bytes,
                pages: contest.backing.name(),
                way: way.name.clone(),
                base: way.base,
                ms: Spread::of(times).context("rounds")?,
            });
        }
        Ok(())
    }
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
    use super::shuffled;

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
}
