//! `--pinned`: the lease as the host memory of an inference server, by `libprezero_pinned.so`.

use std::io;
use std::num::NonZeroUsize;
use std::os::fd::{AsRawFd, IntoRawFd};
use std::path::PathBuf;
use std::process::Command;

use prezero::{HUGE, Size};
use rustix::fs::{MemfdFlags, fstat, memfd_create};

use super::gpus::{self, Gpu};
use super::handed::Handed;
use super::line::{Line, PLACE};

/// The GPU of each rank that has a lease; `None`: not known.
pub type Ranks = Vec<Option<Gpu>>;

/// The options of `prezero claim` that belong together.
#[derive(clap::Args, Debug)]
pub struct Pinned {
    /// For inference servers: pinned and shared memory
    ///
    /// Preload a library that cuts requests for host memory out of the lease: cudaHostAlloc and its kin, which are registered
    /// with the GPU's driver, large anonymous mappings, and files in /dev/shm. Requests that do not
    /// fit go to the driver or the kernel as before. A last line says how much of the lease served what.
    #[arg(long, conflicts_with = "preload")]
    pinned: bool,
    /// Smallest request that --pinned serves
    #[arg(
        long,
        value_name = "SIZE",
        default_value = "64M",
        hide_short_help = true,
        value_parser = pages,
        requires = "pinned"
    )]
    pinned_threshold: Size,
    #[allow(clippy::doc_markdown, reason = "the comment is the help")]
    /// A lease of SIZE for each of N ranks, by its GPU's node
    ///
    /// Rank I has the GPU that CUDA_VISIBLE_DEVICES names at place I, and its lease is on that GPU's NUMA node unless
    /// --node names another. A pinned allocation is cut out of the lease of the GPU that its thread has, other memory out of
    /// that of LOCAL_RANK; what is larger than SIZE spans leases.
    #[arg(
        long,
        value_name = "N",
        hide_short_help = true,
        requires = "pinned",
        conflicts_with = "path"
    )]
    each: Option<NonZeroUsize>,
    /// Where GPUs are looked for: for tests.
    #[arg(long, value_name = "DIR", hide = true, default_value = "/sys", requires = "pinned")]
    sysfs: PathBuf,
}

/// A size of one huge page or more: no part of a lease is smaller.
fn pages(text: &str) -> Result<Size, String> {
    match text.parse()? {
        Size(..HUGE) => Err("less than a part of a lease; give 2M or more".into()),
        size => Ok(size),
    }
}

impl Pinned {
    /// Whether it is asked for.
    pub fn is_on(&self) -> bool {
        self.pinned
    }

    /// Refuses what cannot be with several leases.
    pub fn look(&self, line: &Line) -> Result<(), String> {
        let has_place = || line.words().iter().any(|word| word.contains(PLACE));
        if self.each.is_some_and(|each| each.get() > 1) && has_place() {
            return Err("--each: {lease} is one file, and there are several; leave it out".into());
        }
        Ok(())
    }

    /// The GPUs of the ranks that have a lease each; one that is not known without `--each`.
    pub fn gpus(&self) -> Ranks {
        let Some(each) = self.each else { return vec![None] };
        let variable = |name: &str| std::env::var(name).ok();
        let (gpus, why) = gpus::of_ranks(&self.sysfs, &variable, each.get());
        if let Some(why) = why {
            prezero_sys::tell!("prezero: claim: --each: {why}; such leases are of any node");
        }
        gpus
    }

    /// Tells the program's library of its lease, of the memory that its processes share beside it, and of the knobs.
    pub fn tell(
        &self,
        command: &mut Command,
        leases: &[Handed],
        gpus: &Ranks,
        or_plain: bool,
    ) -> io::Result<()> {
        command
            .env("PREZERO_PINNED_THRESHOLD", self.pinned_threshold.0.to_string())
            .env("PREZERO_PINNED_PLAIN", u8::from(or_plain).to_string());
        for name in [
            "PREZERO_PINNED_BOARD",
            "PREZERO_PINNED_INODE",
            "PREZERO_LEASE_INODE",
            "PREZERO_LEASE_RANKS",
        ] {
            command.env_remove(name);
        }
        let Some(lease) = leases.first() else { return Ok(()) };
        if self.each.is_some() {
            let rank = |(lease, gpu): (&Handed, &Option<Gpu>)| {
                let address = gpu.as_ref().map_or("", |gpu| &gpu.address);
                Ok(format!("{}/{}/{address}", lease.number(), lease.inode()?))
            };
            let ranks: io::Result<Vec<String>> = leases.iter().zip(gpus).map(rank).collect();
            command.env("PREZERO_LEASE_RANKS", ranks?.join(","));
        }
        // Open in the program, as the lease is: its children find both by its number.
        let board = memfd_create("prezero-pinned", MemfdFlags::empty())?;
        command
            .env("PREZERO_LEASE_INODE", lease.inode()?.to_string())
            .env("PREZERO_PINNED_BOARD", board.as_raw_fd().to_string())
            .env("PREZERO_PINNED_INODE", fstat(&board)?.st_ino.to_string());
        let _ = board.into_raw_fd();
        Ok(())
    }
}
