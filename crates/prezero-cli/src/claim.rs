//! `prezero claim`: becomes a program that starts with its memory leased.
//!
//! The lease is an open descriptor of the program, and `{lease}` in its arguments its path.
//! The program's end, and nothing else, gives the memory back.

use std::convert::Infallible;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};

use crate::help::OneScreen;
use crate::library::{self, LibraryError};
use crate::program::{self, Missing};
use prezero::Size;
use prezerod::client::{Client, ClientError, Lease, socket_path};
use prezerod::protocol::{Charged, Page, Want};

mod handed;
mod link;
mod traps;
mod wait;

pub use handed::Handed;
use traps::{Offer, Preloaded};
use wait::Wait;

/// What stands for the lease's path.
const PLACE: &str = "{lease}";

/// The command line of `prezero claim`.
#[derive(clap::Args)]
#[command(
    after_help = "{lease} in ARGS becomes the path of the memory; more is in prezero-claim(1).\n\
    Example: prezero claim 1G -- memcached -m 1024 -e {lease}\n\
    Exit status: the program's; 125 no lease, 126 not run, 127 no such PROGRAM.",
    after_long_help = "In PROGRAM's arguments {lease} becomes the path of the memory; PREZERO_LEASE_FD \
    is its descriptor, PREZERO_LEASE_BYTES its size.\n\n\
    Examples:\n\n\
    QEMU: prezero claim 4G -- qemu-system-x86_64 -m 4G \
    -object memory-backend-file,id=m,size=4G,mem-path={lease},share=on -machine memory-backend=m ...\n\n\
    memcached: prezero claim 1G --preload -- memcached -m 1024 -e {lease}\n\n\
    JVM: prezero claim 4G --preload -- java -Xms4g -Xmx4g -XX:AllocateHeapAt=/tmp ...\n\n\
    PostgreSQL: prezero claim 1200M --preload -- postgres -D DIR -c shared_buffers=1GB\n\n\
    Exit status: the program's own; 125 no lease, 126 PROGRAM cannot run, 127 no such PROGRAM."
)]
pub struct Claim {
    #[command(flatten)]
    _help: OneScreen,
    /// How much, a multiple of the page size: 512M, 4G
    #[arg(value_name = "SIZE")]
    size: Size,
    /// Size of the pages
    #[arg(long, value_name = "2M|1G", default_value = "2M")]
    page_size: Size,
    /// NUMA node [any]
    #[arg(long, value_name = "N")]
    node: Option<u16>,
    /// Longest wait: 30, 500ms, 2m
    ///
    /// How long to wait if it is not ready: seconds, or with a unit.
    #[arg(long, value_name = "TIME", default_value = "30s")]
    wait: Wait,
    /// Socket of prezerod
    ///
    /// By default the user's own, or else /run/prezero/prezerod.sock.
    #[arg(long, value_name = "PATH", env = "PREZERO_SOCKET", hide_env_values = true)]
    socket: Option<PathBuf>,
    /// A path of the memory too; {lease} is FILE then
    ///
    /// For programs with a path of their own. It is a link that leads nowhere once the program
    /// has ended.
    #[arg(long, value_name = "FILE")]
    path: Option<PathBuf>,
    // Written twice: what is a name in a comment would be shown as one.
    /// Preload a library that answers a request for shared memory with the lease.
    #[arg(
        long,
        help = "For a JVM or PostgreSQL, which take no path",
        long_help = "For programs that take no path, a JVM with -XX:AllocateHeapAt=DIR or PostgreSQL: preload \
                     a library that answers their request for shared memory with the lease; and for those \
                     that map {lease} anywhere, as memcached: it maps it where huge pages begin"
    )]
    preload: bool,
    /// The program; without one the lease is described
    ///
    /// The program and its arguments; without one the lease is described and given back.
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
    /// The library is not there.
    #[error(transparent)]
    Library(#[from] LibraryError),
    /// The link could not be made.
    #[error("--path {path}: {1}", path = .0.display())]
    Path(PathBuf, String),
    /// Nobody reads, or there is no room.
    #[error("standard output: {0}")]
    Output(io::Error),
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
            if let Some(path) = &self.path {
                let what = "a link for a program, and there is none; add -- PROGRAM";
                return Err(Failure::Path(path.clone(), what.into()));
            }
            let lease = self.lease()?;
            return prezero_sys::print!("{}\n", described(&lease)).map_err(Failure::Output);
        };
        let preloaded = if self.preload { Preloaded::Yes } else { Preloaded::No };
        let offer = Offer { lease: self.size, path: self.path.as_deref(), preloaded };
        traps::look(name, arguments, offer).map_err(Failure::Trap)?;
        if let Some(path) = &self.path {
            link::look(path).map_err(|what| Failure::Path(path.clone(), what))?;
        }
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
        let preload = if self.preload {
            let library = library::find(library::LEASE_SHIM)?;
            Some(library::in_front_of(&library, std::env::var_os("LD_PRELOAD"))?)
        } else {
            None
        };
        let lease = self.lease()?;
        let mut handed = Handed::over(&lease).map_err(|error| refused(path, error))?;
        if let Some(link) = &self.path {
            handed.link(link).map_err(|what| Failure::Path(link.clone(), what))?;
        }
        let mut command = handed.command(path);
        command.arg0(name).args(arguments.iter().map(|argument| replaced(argument, &handed.place)));
        command.envs(preload.map(|preload| ("LD_PRELOAD", preload)));
        let error = command.exec();
        if self.path.is_some() {
            handed.unlink();
        }
        Err(refused(path, error))
    }

    fn lease(&self) -> Result<Lease, Failure> {
        let page = Page::of(self.page_size.0 as u64).ok_or_else(|| {
            let small = if self.page_size.0 < 2 << 20 {
                " (in small pages a lease costs its client more than no lease: a fault each)"
            } else {
                ""
            };
            Failure::Option(format!("--page-size {}: give 2M or 1G{small}", self.page_size))
        })?;
        let socket = self.socket.clone().unwrap_or_else(socket_path);
        let want = Want { bytes: self.size.0 as u64, page, node: self.node };
        Ok(Client::connect(&socket)?.lease(want, self.wait.0)?)
    }
}

fn refused(path: &Path, error: io::Error) -> Failure {
    Failure::Exec(path.to_owned(), error)
}

fn described(lease: &Lease) -> String {
    let granted = &lease.granted;
    format!(
        "{} in {} pages ({}) on node {}: waited {:.3} ms, zeroed {:.1} s before for {:.0} ms of CPU time, \
         charged to {}; given back",
        Size(granted.bytes as usize),
        granted.page,
        granted.backing.name(),
        granted.node,
        granted.waited_ns as f64 / 1e6,
        granted.age_ns as f64 / 1e9,
        granted.cost_ns as f64 / 1e6,
        match granted.charged {
            Charged::Broker => "the broker's cgroup",
            Charged::Tenant => "the tenant's cgroup",
        }
    )
}

/// The argument with the path in place of every `{lease}`.
fn replaced(argument: &OsStr, place: &OsStr) -> OsString {
    let (mut rest, mut whole) = (argument.as_bytes(), vec![]);
    while let Some(at) = rest.windows(PLACE.len()).position(|bytes| bytes == PLACE.as_bytes()) {
        whole.extend(&rest[..at]);
        whole.extend(place.as_bytes());
        rest = &rest[at + PLACE.len()..];
    }
    whole.extend(rest);
    OsString::from_vec(whole)
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
            assert_eq!(replaced(OsStr::new(argument), OsStr::new("/p/3")), expected);
        }
        let raw = OsStr::from_bytes(b"\xff{lease}\xfe");
        assert_eq!(replaced(raw, OsStr::new("x")).as_bytes(), b"\xffx\xfe");
    }
}
