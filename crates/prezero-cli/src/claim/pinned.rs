//! `--pinned`: the lease as the host memory of an inference server, by `libprezero_pinned.so`.

use std::io;
use std::os::fd::{AsRawFd, IntoRawFd};
use std::process::Command;

use prezero::{HUGE, Size};
use rustix::fs::{MemfdFlags, fstat, memfd_create};

use super::handed::Handed;

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
    /// Largest single registration with the GPU's driver
    ///
    /// A larger one is divided, so that the driver's lock is free in between. A copy that spans two registrations may be
    /// refused by the driver: make it a multiple of what the server copies at a time.
    #[arg(
        long,
        value_name = "SIZE",
        default_value = "64G",
        hide_short_help = true,
        value_parser = pages,
        requires = "pinned"
    )]
    pinned_chunk: Size,
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

    /// Tells the program's library of its lease, of the memory that its processes share beside it, and of the knobs.
    pub fn tell(
        &self,
        command: &mut Command,
        lease: Option<&Handed>,
        or_plain: bool,
    ) -> io::Result<()> {
        command
            .env("PREZERO_PINNED_THRESHOLD", self.pinned_threshold.0.to_string())
            .env("PREZERO_PINNED_CHUNK", self.pinned_chunk.0.to_string())
            .env("PREZERO_PINNED_PLAIN", u8::from(or_plain).to_string());
        for name in ["PREZERO_PINNED_BOARD", "PREZERO_PINNED_INODE", "PREZERO_LEASE_INODE"] {
            command.env_remove(name);
        }
        let Some(lease) = lease else { return Ok(()) };
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
