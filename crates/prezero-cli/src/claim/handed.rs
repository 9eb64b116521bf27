//! Memory in the hands of the program that this process becomes: a lease, or a file in its place.

use std::ffi::OsString;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::Command;

use super::link;
use prezerod::client::Lease;
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, fstat, ftruncate, memfd_create};
use rustix::io::{FdFlags, fcntl_dupfd_cloexec, fcntl_setfd};
use rustix::process::{Resource, getrlimit};

/// A page of memory that was not leased.
const SMALL: u64 = 4096;

/// The descriptor stays open, and is told to the program by its environment.
#[derive(Debug)]
pub struct Handed {
    file: OwnedFd,
    bytes: u64,
    page: u64,
    /// The path by which the program finds it.
    pub place: OsString,
}

impl Handed {
    /// Lets the lease outlive `exec`.
    pub fn over(lease: Lease) -> io::Result<Handed> {
        Handed::new(lease.file, lease.granted.bytes, lease.granted.page.bytes())
    }

    /// As much ordinary memory, which the kernel clears when the program touches it. Its size is
    /// sealed, as a lease's.
    pub fn ordinary(bytes: u64) -> io::Result<Handed> {
        // Beyond it the kernel would end this process.
        if getrlimit(Resource::Fsize).current.is_some_and(|limit| limit < bytes) {
            let text = "no file of that size may be made; raise the limit of files (ulimit -f)";
            return Err(io::Error::other(text));
        }
        let file = memfd_create("ordinary", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        ftruncate(&file, bytes)?;
        fcntl_add_seals(&file, SealFlags::GROW | SealFlags::SHRINK | SealFlags::SEAL)?;
        Handed::new(file, bytes, SMALL)
    }

    /// The first number that is free, 3 for most programs: it is what containers hand on.
    fn new(file: OwnedFd, bytes: u64, page: u64) -> io::Result<Handed> {
        const FIRST: i32 = 3;
        let file = fcntl_dupfd_cloexec(file, FIRST)?;
        fcntl_setfd(&file, FdFlags::empty())?;
        let place = format!("/proc/self/fd/{}", file.as_raw_fd()).into();
        Ok(Handed { file, bytes, page, place })
    }

    /// Makes `path` a link to the memory, and the place, wherever the program goes. By the process
    /// and not `self`: others of the same user find it there too.
    pub fn link(&mut self, path: &Path) -> Result<(), String> {
        let path = std::path::absolute(path).map_err(|error| error.to_string())?;
        link::make(&path, &self.here())?;
        self.place = path.into();
        Ok(())
    }

    /// Takes the link back: there is no program.
    pub fn unlink(&self) {
        link::remove(Path::new(&self.place), &self.here());
    }

    /// The memory, as others see it.
    fn here(&self) -> PathBuf {
        format!("/proc/{}/fd/{}", std::process::id(), self.file.as_raw_fd()).into()
    }

    /// Its number in the program.
    pub fn number(&self) -> i32 {
        self.file.as_raw_fd()
    }

    /// By which processes know it again.
    pub fn inode(&self) -> io::Result<u64> {
        Ok(fstat(&self.file)?.st_ino)
    }

    /// Tells the program of its memory.
    pub fn tell(&self, command: &mut Command) {
        command
            .env("PREZERO_LEASE_FD", self.file.as_raw_fd().to_string())
            .env("PREZERO_LEASE_BYTES", self.bytes.to_string())
            .env("PREZERO_LEASE_PAGE", self.page.to_string())
            .env("PREZERO_LEASE_PID", std::process::id().to_string());
    }
}
