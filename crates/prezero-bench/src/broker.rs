//! What the benchmarks of leases share: a broker of their own, and pages for it.

use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use prezero_command::companion;
use prezerod::client::Client;
use prezerod::host::Host;
use prezerod::protocol::{Backing, Page, Report};
use rustix::process::{Signal, set_parent_process_death_signal};

use crate::scratch::Scratch;

/// How long the broker may take to make what a round needs.
const PATIENCE: Duration = Duration::from_secs(120);
/// Bytes of a page.
pub const HUGE: u64 = 2 << 20;

/// The backings that this host has for `bytes`; why others are left out goes to the notes.
pub fn backings(bytes: u64, notes: &mut Vec<String>) -> Vec<Backing> {
    let (host, pages) = (Host::new("/"), bytes / HUGE);
    let free: u64 = host.nodes().iter().map(|&node| host.pool(node, Page::Huge).free).sum();
    let mut there = vec![];
    if free >= pages {
        there.push(Backing::Hugetlb);
    } else {
        let why = format!("fewer than {pages} pages free; give --reserve as root");
        notes.push(format!("left out: hugetlb: {why}"));
    }
    if host.thp() {
        there.push(Backing::Thp);
    } else {
        notes.push("left out: leases of thp: this kernel makes none".into());
    }
    there
}

/// A broker of this benchmark, ended when dropped.
pub struct Broker {
    process: Child,
    scratch: Scratch,
}

impl Broker {
    /// One with these lines in its configuration, too.
    pub fn start(backing: Backing, bytes: u64, keep: u64, lines: &str) -> Result<Broker> {
        let scratch = Scratch::new()?;
        let config = format!(
            "{lines}backing = \"{}\"\nlimit = {}\n[[stock]]\nsize = {bytes}\nkeep = {keep}\nmost = {keep}\n",
            backing.name(),
            bytes * keep,
        );
        std::fs::write(scratch.file("config"), config)?;
        let program = companion::find(companion::PREZEROD)?;
        let mut command = Command::new(&program);
        command.arg("--config").arg(scratch.file("config"));
        command.arg("--socket").arg(scratch.file("socket"));
        command.stderr(Stdio::null()).process_group(0);
        // Out of the terminal's reach, it must not outlive a benchmark that is killed.
        // SAFETY: between fork and exec: one system call, which neither allocates nor locks.
        unsafe { command.pre_exec(|| Ok(set_parent_process_death_signal(Some(Signal::KILL))?)) };
        let process =
            command.spawn().with_context(|| format!("{}: cannot be run", program.display()))?;
        let broker = Broker { process, scratch };
        let began = Instant::now();
        while broker.connect().is_err() {
            ensure!(began.elapsed() < PATIENCE, "prezerod does not come up; try it by itself");
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(broker)
    }

    fn connect(&self) -> Result<Client> {
        Ok(Client::connect(&self.scratch.file("socket"))?)
    }

    /// Waits until a number of leases lie ready.
    pub fn wait_for(&self, leases: u64) -> Result<()> {
        let mut client = self.connect()?;
        let began = Instant::now();
        loop {
            let report: serde_json::Value = serde_json::from_str(&client.report(Report::Stock)?)?;
            if report["ready"].as_array().is_some_and(|ready| ready.len() as u64 >= leases) {
                return Ok(());
            }
            ensure!(began.elapsed() < PATIENCE, "the broker makes nothing; is memory short?");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Where clients find it.
    pub fn socket(&self) -> PathBuf {
        self.scratch.file("socket")
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Hugetlb pages on top of those there are, given back when dropped.
pub struct Reserved {
    before: String,
}

impl Reserved {
    const FILE: &str = "/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages";

    const COMPACT: &str = "/proc/sys/vm/compact_memory";

    pub fn new(pages: u64) -> Result<Reserved> {
        let before = std::fs::read_to_string(Self::FILE)?.trim().to_owned();
        let all = before.parse::<u64>()? + pages;
        std::fs::write(Self::FILE, all.to_string()).context("--reserve: needs root")?;
        let reserved = Reserved { before };
        if reserved.pages()? < all {
            // Free memory may lie in pieces.
            let _ = std::fs::write(Self::COMPACT, "1");
            std::fs::write(Self::FILE, all.to_string())?;
        }
        let got = reserved.pages()?;
        ensure!(
            got >= all,
            "--reserve: {all} hugetlb pages wanted, the kernel found {got}; give smaller --sizes"
        );
        Ok(reserved)
    }

    fn pages(&self) -> Result<u64> {
        Ok(std::fs::read_to_string(Self::FILE)?.trim().parse()?)
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        if std::fs::write(Self::FILE, &self.before).is_err() {
            prezero_sys::tell!("prezero: bench: {} should be {} again", Self::FILE, self.before);
        }
    }
}
