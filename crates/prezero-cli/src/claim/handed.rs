//! A lease in the hands of the program that this process becomes.

use std::ffi::OsString;
use std::io;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::link;
use prezerod::client::Lease;
use rustix::io::{FdFlags, fcntl_setfd};

/// The descriptor stays open, and is told to the program by its environment.
#[derive(Debug)]
pub struct Handed {
    number: i32,
    bytes: u64,
    page: u64,
    /// The path by which the program finds it.
    pub place: OsString,
}

impl Handed {
    /// Lets the lease outlive `exec`.
    pub fn over(lease: &Lease) -> io::Result<Handed> {
        fcntl_setfd(&lease.file, FdFlags::empty())?;
        let number = lease.file.as_raw_fd();
        let (bytes, page) = (lease.granted.bytes, lease.granted.page.bytes());
        Ok(Handed { number, bytes, page, place: format!("/proc/self/fd/{number}").into() })
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
        format!("/proc/{}/fd/{}", std::process::id(), self.number).into()
    }

    /// The program, told of its lease.
    pub fn command(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        command
            .env("PREZERO_LEASE_FD", self.number.to_string())
            .env("PREZERO_LEASE_BYTES", self.bytes.to_string())
            .env("PREZERO_LEASE_PAGE", self.page.to_string());
        command
    }
}
