//! `prezero claim`: becomes a program that starts with its memory leased.
//!
//! The lease is an open descriptor of the program, and `{lease}` in its arguments its path.
//! The program's end, and nothing else, gives the memory back. Without a lease there is no program,
//! or with `--or-plain` one that has ordinary memory (`known` says which, for each program).

use std::convert::Infallible;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::given;
use crate::run::STDERR_VARIABLE;
use prezero::Size;
use prezero_command::help::OneScreen;
use prezero_command::library::{self, LibraryError};
use prezero_command::program::{self, Missing};
use prezero_host::jvm::Around;
use prezero_sys::stderr;
use prezerod::client::{ClientError, Door, Lease, PLAIN_WAIT, lease_within};
use prezerod::protocol::{Charged, Otherwise, Page, Want};

mod gpus;
mod handed;
mod known;
mod line;
mod link;
mod pinned;
mod wait;

use gpus::Gpu;
use handed::Handed;
use known::{Instead, Offer, Preloaded};
use line::Line;
use pinned::{Pinned, Ranks};
pub use wait::Wait;

/// The wait unless told otherwise.
/// Fixed: a person who waits at a terminal.
const WAIT: Duration = Duration::from_secs(30);

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
    -object memory-backend-file,id=m,size=4G,mem-path={lease},share=on,align=2M \
    -machine memory-backend=m ...\n\n\
    memcached: prezero claim 1G --preload -- memcached -m 1024 -e {lease}\n\n\
    JVM: prezero claim 4G --preload -- java -Xms4g -Xmx4g -XX:AllocateHeapAt=/tmp ...\n\n\
    PostgreSQL: prezero claim 1200M --preload -- postgres -D DIR -c shared_buffers=1GB\n\n\
    GPU servers: prezero claim 64G --pinned --or-plain -- vllm serve MODEL ...; or 16G --each 4 for four ranks\n\n\
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
    /// Longest wait: 30, 500ms, 2m [30s; see --or-plain]
    ///
    /// How long to wait if it is not ready, in seconds or with a unit: for a broker that is stopped or
    /// has too many connections as well, and a second for its answer. [30s; see --or-plain]
    #[arg(long, value_name = "TIME")]
    wait: Option<Wait>,
    /// Without a lease run PROGRAM with ordinary memory
    ///
    /// Where there is no broker, or no lease in time, one line says so, and PROGRAM runs with the memory
    /// that it has by itself. {lease} is a file of ordinary memory for programs that need one. Without
    /// --wait no lease is made to order: one that is nearly made is waited for, a second at most.
    #[arg(long)]
    or_plain: bool,
    /// Socket of prezerod
    ///
    /// By default the user's own, or else /run/prezero/prezerod.sock. With --each also a list, PATH,PATH: a socket for each
    /// rank, as a pod with a claim for each has them. Such leases are of any node unless --node says another.
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
    #[command(flatten)]
    pinned: Pinned,
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
    /// Standard output has no reader, or no room.
    #[error("standard output: {0}")]
    Output(io::Error),
    /// The program's memory could not be made ready for it.
    #[error("{0} for the program: {1}")]
    Ordinary(Size, io::Error),
    /// The kernel refused.
    #[error("{path}: {1}", path = .0.display())]
    Exec(PathBuf, io::Error),
}

impl Failure {
    /// The exit status, as env(1) has it.
    pub fn status(&self) -> u8 {
        match self {
            Failure::Program(Missing::NotFound(_)) => 127,
            Failure::Program(_) | Failure::Exec(..) => 126,
            _ => crate::run::OWN_FAILURE,
        }
    }
}

impl Claim {
    /// Becomes the program; without one describes the lease.
    pub fn run(&self) -> Result<(), Failure> {
        let page = self.page()?;
        self.whole(page)?;
        let Some((name, arguments)) = self.command.split_first() else {
            if let Some(path) = &self.path {
                let what = "a link for a program, and there is none; add -- PROGRAM";
                return Err(Failure::Path(path.clone(), what.into()));
            }
            let lease = self.lease(&self.door(), page, self.node)?;
            return prezero_sys::print!("{}\n", described(&lease)).map_err(Failure::Output);
        };
        let preloaded = if self.preload { Preloaded::Yes } else { Preloaded::No };
        let (lease, path) = (self.size, self.path.as_deref());
        let offer = Offer { lease, page: page.bytes(), path, preloaded };
        let line = Line::new(name, arguments);
        let around = Around {
            variable: &|name| std::env::var(name).ok(),
            file: &|path| std::fs::read_to_string(path).ok(),
        };
        self.pinned.look(&line).map_err(Failure::Trap)?;
        known::look(&line, &offer, &around).map_err(Failure::Trap)?;
        if let Some(path) = &self.path {
            link::look(path).map_err(|what| Failure::Path(path.clone(), what))?;
        }
        let program = program::find(name, std::env::var_os("PATH")).map_err(Failure::Program)?;
        let library = match (self.preload, self.pinned.is_on()) {
            (true, _) => Some(library::find(library::LEASE_SHIM)?),
            (_, true) => Some(library::find(library::PINNED)?),
            _ => None,
        };
        let present = || std::env::var_os("LD_PRELOAD");
        let preload =
            library.map(|library| library::in_front_of(&library, present())).transpose()?;
        let start = self.start(page, line, &offer, &around)?;
        let Err(failure) = self.exec(&program, start, preload);
        Err(failure)
    }

    /// Leases, or finds out how the program starts without a lease.
    fn start(
        &self,
        page: Page,
        mut line: Line,
        offer: &Offer<'_>,
        around: &Around<'_>,
    ) -> Result<Start, Failure> {
        let refused = |error| Failure::Ordinary(self.size, error);
        let gpus = self.pinned.gpus();
        let error = match self.leases(page, &gpus) {
            Ok(leases) => {
                known::fit(&mut line, offer);
                let handed: Result<Vec<_>, _> = leases.into_iter().map(Handed::over).collect();
                return Ok(Start { gpus, ..Start::with(line, handed.map_err(refused)?) });
            }
            Err(Failure::Client(error)) if self.or_plain => error,
            Err(failure) => return Err(failure),
        };
        let program = line.program();
        prezero_sys::tell!("prezero: claim: {error}; {program} runs with ordinary memory");
        let names_file = line.words().iter().any(|word| word.contains(line::PLACE));
        if self.pinned.is_on() && !names_file {
            return Ok(Start::with(line, vec![]));
        }
        Ok(match known::plain(&mut line, offer, around) {
            Instead::Own(variables) => Start { variables, ..Start::with(line, vec![]) },
            Instead::File => match Handed::ordinary(self.size.0 as u64) {
                Ok(file) => {
                    known::fit(&mut line, offer);
                    Start::with(line, vec![file])
                }
                // A program that names no file runs without one.
                Err(_) if !names_file && self.path.is_none() => Start::with(line, vec![]),
                Err(error) => return Err(refused(error)),
            },
        })
    }

    fn exec(
        &self,
        program: &Path,
        start: Start,
        preload: Option<OsString>,
    ) -> Result<Infallible, Failure> {
        let Start { line, mut handed, gpus, variables } = start;
        let mut command = Command::new(program);
        command.arg0(&line.name).envs(variables);
        if let Some(preload) = preload.filter(|_| !handed.is_empty() || self.pinned.is_on()) {
            command.env("LD_PRELOAD", preload).env(STDERR_VARIABLE, stderr::noted());
        }
        if self.pinned.is_on() {
            let told = self.pinned.tell(&mut command, &handed, &gpus, self.or_plain);
            told.map_err(|error| Failure::Ordinary(self.size, error))?;
        }
        if let Some(handed) = handed.first_mut() {
            if let Some(link) = &self.path {
                handed.link(link).map_err(|what| Failure::Path(link.clone(), what))?;
            }
            handed.tell(&mut command);
        }
        let place = handed.first().map_or(OsStr::new(""), |handed| &handed.place);
        let error = given::hand_on(command.args(line.placed(place))).exec();
        if let Some(handed) = handed.first().filter(|_| self.path.is_some()) {
            handed.unlink();
        }
        match program::without_interpreter(program) {
            Some(missing) if error.kind() == std::io::ErrorKind::NotFound => {
                Err(Failure::Program(missing))
            }
            _ => Err(Failure::Exec(program.to_owned(), error)),
        }
    }

    fn page(&self) -> Result<Page, Failure> {
        Page::of(self.page_size.0 as u64).ok_or_else(|| {
            let small = if self.page_size.0 < 2 << 20 {
                " (in small pages a lease costs its client more than no lease: a fault each)"
            } else {
                ""
            };
            Failure::Option(format!("--page-size {}: give 2M or 1G{small}", self.page_size))
        })
    }

    /// What a broker would refuse, refused where there is no broker too.
    fn whole(&self, page: Page) -> Result<(), Failure> {
        let (size, bytes, each) = (self.size, self.size.0, page.bytes() as usize);
        if bytes == 0 || bytes % each != 0 {
            let next = Size((bytes / each).saturating_add(1).saturating_mul(each));
            let what = format!("{size} is no multiple of the page, {page}; round up to {next}");
            return Err(Failure::Option(what));
        }
        Ok(())
    }

    /// One lease, or one for each rank, on its GPU's node unless `--node` says another: all or none.
    fn leases(&self, page: Page, ranks: &Ranks) -> Result<Vec<Lease>, Failure> {
        let door = self.door();
        let sockets = one_for_each(door.path(), ranks.len()).map_err(Failure::Option)?;
        let node = |gpu: &Option<Gpu>| gpu.as_ref().and_then(|gpu| gpu.node);
        let leases = ranks.iter().enumerate().map(|(rank, gpu)| match &sockets {
            None => self.lease(&door, page, self.node.or(node(gpu))),
            Some(sockets) => self.lease(&Door::named(&sockets[rank]), page, self.node),
        });
        leases.collect()
    }

    fn door(&self) -> Door {
        Door::find(self.socket.as_deref())
    }

    fn lease(&self, door: &Door, page: Page, node: Option<u16>) -> Result<Lease, Failure> {
        let want = Want { bytes: self.size.0 as u64, page, node };
        let (wait, otherwise) = self.patience();
        Ok(lease_within(door, want, wait, otherwise)?)
    }

    /// How long it waits for a lease, and what it has otherwise. An explicit wait is for one made to order, too.
    fn patience(&self) -> (Duration, Otherwise) {
        match self.wait {
            None if self.or_plain => (PLAIN_WAIT, Otherwise::Plain),
            None => (WAIT, Otherwise::ComesBack),
            Some(Wait(Duration::ZERO)) if self.or_plain => (Duration::ZERO, Otherwise::Plain),
            Some(Wait(wait)) => (wait, Otherwise::ComesBack),
        }
    }
}

/// The sockets of a list, one for each rank; `None`: one socket has all leases.
fn one_for_each(socket: &Path, ranks: usize) -> Result<Option<Vec<PathBuf>>, String> {
    let list: Vec<PathBuf> = match socket.to_str() {
        Some(list) if ranks > 1 && !socket.exists() => list.split(',').map(PathBuf::from).collect(),
        _ => return Ok(None),
    };
    match list.len() {
        1 => Ok(None),
        count if count == ranks => Ok(Some(list)),
        count => {
            Err(format!("--socket: {count} paths for {ranks} ranks; give one for each, or one"))
        }
    }
}

/// What the program starts with.
struct Start {
    line: Line,
    /// Empty: memory of its own. More than one: with `--each`.
    handed: Vec<Handed>,
    gpus: Ranks,
    variables: Vec<(&'static str, String)>,
}

impl Start {
    fn with(line: Line, handed: Vec<Handed>) -> Start {
        Start { line, handed, gpus: vec![], variables: vec![] }
    }
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
