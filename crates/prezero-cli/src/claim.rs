//! `prezero claim`: becomes a program that starts with its memory leased.
//!
//! The lease is an open descriptor of the program, and `{lease}` in its arguments its path.
//! The program's end, and nothing else, gives the memory back.

use std::convert::Infallible;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use prezero::Size;
use prezerod::client::{Client, ClientError, Lease, socket_path};
use prezerod::protocol::{Page, Want};
use rustix::io::{FdFlags, fcntl_setfd};

use crate::program::{self, Missing};

/// What stands for the lease's path.
const PLACE: &str = "{lease}";

/// The command line of `prezero claim`.
#[derive(clap::Args)]
#[command(
    after_help = "In PROGRAM's arguments {lease} becomes the path of the memory; PREZERO_LEASE_FD \
    is its descriptor, PREZERO_LEASE_BYTES its size.\n\
    Examples:\n\
    QEMU: prezero claim 4G -- qemu-system-x86_64 -m 4G \
    -object memory-backend-file,id=m,size=4G,mem-path={lease},share=on -machine memory-backend=m ...\n\
    memcached: prezero claim 1G -- memcached -m 1024 -e {lease}\n\
    Exit status: the program's own; 125 no lease, 126 PROGRAM cannot run, 127 no such PROGRAM."
)]
pub struct Claim {
    /// How much, a multiple of the page size: 512M, 4G
    #[arg(value_name = "SIZE")]
    size: Size,
    /// Size of the pages
    #[arg(long, value_name = "2M|1G", default_value = "2M")]
    page_size: Size,
    /// NUMA node [any]
    #[arg(long, value_name = "N")]
    node: Option<u16>,
    /// Seconds to wait if it is not ready
    #[arg(long, value_name = "SECONDS", default_value_t = 30.0)]
    wait: f64,
    /// Socket of prezerod [the user's own, or /run/prezero/prezerod.sock]
    #[arg(long, value_name = "PATH", env = "PREZERO_SOCKET", hide_env_values = true)]
    socket: Option<PathBuf>,
    /// The program and its arguments; without one the lease is described and given back
    #[arg(trailing_var_arg = true, value_names = ["PROGRAM", "ARGS"])]
    command: Vec<OsString>,
}

/// Why there is no lease, or no program.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// An option is no good.
    #[error("{0}")]
    Option(String),
    /// The broker.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// The program would use the lease in a way that costs more than none.
    #[error("{0}")]
    Trap(String),
    /// There is no such program, or it is not one.
    #[error("{0}")]
    Program(Missing),
    /// The kernel refused.
    #[error("{path}: {1}", path = .0.display())]
    Exec(PathBuf, io::Error),
}

impl Failure {
    /// The exit status, as env(1) has it.
    pub fn status(&self) -> u8 {
        match self {
            Failure::Program(Missing::NotFound(_)) => 127,
            Failure::Program(Missing::NotExecutable(_)) | Failure::Exec(..) => 126,
            _ => crate::run::OWN_FAILURE,
        }
    }
}

impl Claim {
    /// Becomes the program; without one describes the lease.
    pub fn run(&self) -> Result<(), Failure> {
        let Some((name, arguments)) = self.command.split_first() else {
            let lease = self.lease()?;
            println!("{}", described(&lease));
            return Ok(());
        };
        trap(arguments).map_err(Failure::Trap)?;
        let path = program::find(name, std::env::var_os("PATH")).map_err(Failure::Program)?;
        let Err(failure) = self.exec(name, &path, arguments);
        Err(failure)
    }

    fn exec(
        &self,
        name: &OsStr,
        path: &Path,
        arguments: &[OsString],
    ) -> Result<Infallible, Failure> {
        let lease = self.lease()?;
        let refused = |error| Failure::Exec(path.to_owned(), error);
        fcntl_setfd(&lease.file, FdFlags::empty()).map_err(|error| refused(error.into()))?;
        let number = lease.file.as_raw_fd();
        let place = format!("/proc/self/fd/{number}");
        let error = Command::new(path)
            .arg0(name)
            .args(arguments.iter().map(|argument| replaced(argument, &place)))
            .env("PREZERO_LEASE_FD", number.to_string())
            .env("PREZERO_LEASE_BYTES", lease.granted.bytes.to_string())
            .exec();
        Err(refused(error))
    }

    fn lease(&self) -> Result<Lease, Failure> {
        let page = Page::of(self.page_size.0 as u64).ok_or_else(|| {
            Failure::Option(format!("--page-size {}: give 2M or 1G", self.page_size))
        })?;
        let wait = Duration::try_from_secs_f64(self.wait)
            .map_err(|_| Failure::Option(format!("--wait {}: give seconds: 30, 0.5", self.wait)))?;
        let socket = self.socket.clone().unwrap_or_else(socket_path);
        let want = Want { bytes: self.size.0 as u64, page, node: self.node };
        Ok(Client::connect(&socket)?.lease(want, wait)?)
    }
}

fn described(lease: &Lease) -> String {
    let granted = &lease.granted;
    format!(
        "{} in {} pages ({}) on node {}: waited {:.3} ms, zeroed {:.1} s before for {:.0} ms of CPU time; given back",
        Size(granted.bytes as usize),
        granted.page,
        granted.backing.name(),
        granted.node,
        granted.waited_ns as f64 / 1e6,
        granted.age_ns as f64 / 1e9,
        granted.cost_ns as f64 / 1e6
    )
}

/// The argument with the path in place of every `{lease}`.
fn replaced(argument: &OsStr, place: &str) -> OsString {
    let (mut rest, mut whole) = (argument.as_bytes(), vec![]);
    while let Some(at) = rest.windows(PLACE.len()).position(|bytes| bytes == PLACE.as_bytes()) {
        whole.extend(&rest[..at]);
        whole.extend(place.as_bytes());
        rest = &rest[at + PLACE.len()..];
    }
    whole.extend(rest);
    OsString::from_vec(whole)
}

/// What is known to go wrong: QEMU maps a file privately unless told to share it, and then
/// copies every page that the guest writes.
fn trap(arguments: &[OsString]) -> Result<(), String> {
    let backend = arguments.iter().map(|argument| argument.to_string_lossy()).find(|argument| {
        argument.starts_with("memory-backend-file") && argument.contains("mem-path={lease}")
    });
    match backend {
        Some(backend) if !backend.split(',').any(|part| part == "share=on") => Err(format!(
            "{backend}: a private mapping copies each page that the guest writes; add share=on"
        )),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_place_becomes_the_path_and_nothing_else_changes() {
        for (argument, expected) in [
            ("{lease}", "/p/3"),
            ("a={lease},b={lease}!", "a=/p/3,b=/p/3!"),
            ("{leas}{lease", "{leas}{lease"),
            ("", ""),
        ] {
            assert_eq!(replaced(OsStr::new(argument), "/p/3"), expected);
        }
        let raw = OsStr::from_bytes(b"\xff{lease}\xfe");
        assert_eq!(replaced(raw, "x").as_bytes(), b"\xffx\xfe");
    }

    #[test]
    fn a_private_guest_is_refused_with_the_mend() {
        let arguments = |text: &str| vec![OsString::from("-object"), OsString::from(text)];
        let private = arguments("memory-backend-file,id=m,size=4G,mem-path={lease}");
        assert!(trap(&private).unwrap_err().contains("add share=on"));
        let off = arguments("memory-backend-file,mem-path={lease},share=off");
        assert!(trap(&off).is_err());
        assert!(trap(&arguments("memory-backend-file,mem-path={lease},share=on")).is_ok());
        assert!(trap(&arguments("memory-backend-file,mem-path=/dev/hugepages")).is_ok());
    }
}
