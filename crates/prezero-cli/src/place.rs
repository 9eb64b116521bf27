//! `prezero place dpdk`: ready files of huge pages where DPDK looks for its own.
//!
//! EAL takes the pages of a run before, if it is told to (`--huge-unlink=never`), without having
//! them cleared: files `PREFIXmap_0`, `PREFIXmap_1`, ... of one page each on a hugetlbfs. So files that
//! are made beforehand, in idle time, spare its start the clearing. They belong to the user of
//! this command, are charged to its cgroup, and stay until they are removed: no lease, since a file of a
//! hugetlbfs cannot be sealed, nor linked from the broker's mounts to a client's.

use std::fs::{self, File};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use prezero::Size;
use prezero_sys::thread;
use rustix::fs::{FallocateFlags, fallocate, fstatfs};
use rustix::io::Errno;

/// Files that a program will take for its own.
#[derive(clap::Subcommand)]
#[command(after_help = "Example: prezero place dpdk 2G")]
pub enum Place {
    /// Zeroed pages for DPDK's EAL, as files of a hugetlbfs; run it with --huge-unlink=never.
    Dpdk(Dpdk),
}

/// The command line of `prezero place dpdk`.
#[derive(clap::Args)]
#[command(after_help = "Example: prezero place dpdk 2G --dir /dev/hugepages --prefix web\n\
    Then: dpdk-testpmd --huge-dir DIR --file-prefix PREFIX --huge-unlink=never -m 2048 ...\n\
    The files stay until they are removed: rm DIR/PREFIXmap_*")]
pub struct Dpdk {
    /// How much, a multiple of DIR's page size: 512M, 4G
    #[arg(value_name = "SIZE")]
    size: Size,
    /// A directory of a hugetlbfs
    #[arg(long, value_name = "DIR", default_value = "/dev/hugepages")]
    dir: PathBuf,
    /// As in EAL's --file-prefix
    #[arg(long, value_name = "PREFIX", default_value = "rte")]
    prefix: String,
}

impl Place {
    /// Makes the files.
    pub fn run(&self) -> Result<()> {
        match self {
            Place::Dpdk(dpdk) => dpdk.run(),
        }
    }
}

impl Dpdk {
    fn run(&self) -> Result<()> {
        let (bytes, dir) = (self.size.0 as u64, self.dir.display());
        let page = page_of(&self.dir)?;
        let shown = Size(page as usize);
        ensure!(
            bytes > 0 && bytes.is_multiple_of(page),
            "{}: no multiple of {dir}'s pages of {shown}; round up",
            self.size
        );
        ensure!(
            !self.prefix.contains('/') && !self.prefix.is_empty(),
            "--prefix {:?}: give a name without a slash, as to EAL's --file-prefix",
            self.prefix
        );
        // No process waits for this yet.
        let _ = thread::become_idle_class();
        let mut made = Made(vec![]);
        for number in 0..bytes / page {
            let path = self.dir.join(format!("{}map_{number}", self.prefix));
            let mut options = File::options();
            options.read(true).write(true).create_new(true).mode(0o600);
            let file = options.open(&path).map_err(|error| match error.kind() {
                io::ErrorKind::AlreadyExists => anyhow::anyhow!(
                    "{}: is there, and may hold what a program left; rm {dir}/{}map_*",
                    path.display(),
                    self.prefix
                ),
                _ => anyhow::Error::new(error).context(path.display().to_string()),
            })?;
            made.0.push(path);
            populate(&file, page, number, bytes)?;
        }
        let count = made.0.len();
        made.0.clear();
        prezero_sys::print!(
            "{count} files of {shown} in {dir}, zero: {0}map_0 to {0}map_{1}\n",
            self.prefix,
            count - 1
        )?;
        Ok(())
    }
}

/// The page size of a directory on a hugetlbfs.
fn page_of(dir: &Path) -> Result<u64> {
    let file = File::open(dir).with_context(|| {
        format!("{}: mount a hugetlbfs there: mount -t hugetlbfs none DIR", dir.display())
    })?;
    let info = fstatfs(&file)?;
    ensure!(
        info.f_type as u64 == prezero_sys::mapping::HUGETLBFS,
        "{}: no hugetlbfs; name a directory of one: grep hugetlbfs /proc/mounts",
        dir.display()
    );
    Ok(info.f_bsize as u64)
}

/// The kernel clears the page, and keeps it for the file.
fn populate(file: &File, page: u64, number: u64, bytes: u64) -> Result<()> {
    loop {
        match fallocate(file.as_fd(), FallocateFlags::empty(), 0, page) {
            Ok(()) => return Ok(()),
            Err(Errno::INTR) => {}
            Err(Errno::NOSPC | Errno::NOMEM) => bail!(
                "{} asked, {} had; no page of {} is left in the pool or in this cgroup: sysctl \
                 vm.nr_hugepages, hugetlb.*.max; nothing is kept",
                Size(bytes as usize),
                Size((number * page) as usize),
                Size(page as usize)
            ),
            Err(error) => return Err(io::Error::from(error).into()),
        }
    }
}

/// Files made so far, removed when not all could be.
struct Made(Vec<PathBuf>);

impl Drop for Made {
    fn drop(&mut self) {
        for path in &self.0 {
            let _ = fs::remove_file(path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_that_is_no_hugetlbfs_is_refused_with_the_mend() {
        let place = |dir: &str| {
            let dpdk = Dpdk { size: Size(2 << 20), dir: dir.into(), prefix: "rte".into() };
            format!("{:#}", dpdk.run().unwrap_err())
        };
        assert!(place("/proc").contains("grep hugetlbfs"), "{}", place("/proc"));
        assert!(place("/no/such/place").contains("mount -t hugetlbfs"));
    }
}
