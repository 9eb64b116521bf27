//! A broker of one's own, in a directory of its own.
#![allow(dead_code, reason = "each test binary uses a part")]

use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};

use prezerod::client::{Client, ClientError, Lease};
use prezerod::host::Host;
use prezerod::protocol::{Answer, MAX_ANSWER, Page, Report, Want};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{FlockOperation, flock};
use rustix::io::retry_on_intr;
use rustix::net::{
    AddressFamily, RecvFlags, SocketAddrUnix, SocketFlags, SocketType, connect, recv, socket_with,
};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open};

pub use prezero_testing::{PATIENCE, until};

pub const MIB: u64 = 1 << 20;

/// Whether this host can make leases at all; says so if not.
pub fn possible() -> bool {
    let possible = Host::new("/").thp();
    if !possible {
        prezero_sys::tell!("skipped: this kernel makes no transparent huge pages of shared memory");
    }
    possible
}

/// The interpreter that `PYTHON` names.
pub fn python() -> Command {
    Command::new(std::env::var("PYTHON").unwrap_or_else(|_| "python3".into()))
}

pub fn want(mib: u64) -> Want {
    Want { bytes: mib * MIB, page: Page::Huge, node: None }
}

/// Reserved pages, given back when dropped. A pool is the machine's: one test of a process has pages of it at a time.
pub struct Reserved {
    file: String,
    before: String,
    _alone: MutexGuard<'static, ()>,
}

static HUGE_POOL: Mutex<()> = Mutex::new(());
static GIANT_POOL: Mutex<()> = Mutex::new(());

impl Reserved {
    pub fn new(page: Page, more: u64) -> Option<Reserved> {
        let pool = if page == Page::Huge { &HUGE_POOL } else { &GIANT_POOL };
        let alone = pool.lock().unwrap_or_else(PoisonError::into_inner);
        let kib = page.bytes() >> 10;
        let file = format!("/sys/kernel/mm/hugepages/hugepages-{kib}kB/nr_hugepages");
        let before = fs::read_to_string(&file).ok()?.trim().to_owned();
        let all = before.parse::<u64>().ok()? + more;
        fs::write(&file, all.to_string()).ok()?;
        let reserved = Reserved { file, before, _alone: alone };
        (fs::read_to_string(&reserved.file).ok()?.trim() == all.to_string()).then_some(reserved)
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        let _ = fs::write(&self.file, &self.before);
        // Pages of processes that have just ended are the pool's until they are free, and would count for the next test.
        if !std::thread::panicking() {
            until("the pool as it was", || match fs::read_to_string(&self.file) {
                Ok(pages) if pages.trim() == self.before => Ok(()),
                pages => Err(format!("{pages:?}, {} before", self.before)),
            });
        }
    }
}

/// Free pages of 2 MiB in the pool of the machine.
pub fn free_pages() -> u64 {
    let file = "/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages";
    fs::read_to_string(file).ok().and_then(|text| text.trim().parse().ok()).unwrap_or(0)
}

/// The kernel frees the pages of a process that ended a moment after its end shows.
pub fn wait_for_free(pages: u64) {
    until("pages free in the pool", || match free_pages() {
        free if free == pages => Ok(()),
        free => Err(format!("{free} pages free, {pages} expected")),
    });
}

/// A socket of the kind that a client has.
pub fn socket() -> OwnedFd {
    socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap()
}

/// A connection that says nothing yet.
pub fn raw(daemon: &Daemon) -> OwnedFd {
    let socket = socket();
    connect(&socket, &SocketAddrUnix::new(daemon.socket()).unwrap()).unwrap();
    rustix::net::sockopt::set_socket_timeout(
        &socket,
        rustix::net::sockopt::Timeout::Recv,
        Some(PATIENCE),
    )
    .unwrap();
    socket
}

/// The next answer, and nothing of what comes with it.
pub fn answer(socket: &OwnedFd) -> Answer {
    let mut packet = vec![0u8; MAX_ANSWER];
    let (len, _) = retry_on_intr(|| recv(socket, &mut packet[..], RecvFlags::empty())).unwrap();
    Answer::decode(&packet[..len]).unwrap().1
}

/// A running broker, killed when dropped.
pub struct Daemon {
    pub dir: tempfile::TempDir,
    process: Option<Child>,
    log: Option<BufReader<ChildStderr>>,
}

impl Daemon {
    /// Starts one with this configuration.
    pub fn start(config: &str) -> Daemon {
        let mut daemon = Daemon { dir: tempfile::tempdir().unwrap(), process: None, log: None };
        daemon.configure(config);
        daemon.again();
        daemon
    }

    pub fn configure(&self, config: &str) {
        fs::write(self.path("config.toml"), config).unwrap();
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub fn socket(&self) -> PathBuf {
        self.path("socket")
    }

    pub fn command(&self) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_prezerod"));
        command.arg("--config").arg(self.path("config.toml"));
        command.arg("--socket").arg(self.socket()).stderr(Stdio::piped());
        command
    }

    /// A client in Python: the script imports `prezero_lease`, and the socket is its first argument.
    pub fn python(&self, script: &str) -> Command {
        let mut command = python();
        command.args(["-c", script]).arg(self.socket());
        command
            .env(
                "PYTHONPATH",
                concat!(
                    env!("CARGO_MANIFEST_DIR"),
                    "/../../bindings/python:",
                    env!("CARGO_MANIFEST_DIR"),
                    "/../../tests/common"
                ),
            )
            .env("PYTHONDONTWRITEBYTECODE", "1");
        command
    }

    /// Starts it again, in the same place.
    pub fn again(&mut self) {
        let command = self.command();
        self.run(command);
    }

    /// Returns what it says until it serves.
    pub fn run(&mut self, mut command: Command) -> String {
        self.attach(command.spawn().unwrap());
        self.wait_for("serving on")
    }

    pub fn attach(&mut self, mut process: Child) {
        self.log = Some(BufReader::new(process.stderr.take().unwrap()));
        self.process = Some(process);
    }

    /// One whose standard error is another's.
    pub fn attach_unheard(&mut self, process: Child) {
        (self.log, self.process) = (None, Some(process));
    }

    /// Reads what it says until it says this; returns all of it.
    pub fn wait_for(&mut self, words: &str) -> String {
        let mut said = String::new();
        let log = self.log.as_mut().unwrap();
        while log.read_line(&mut said).unwrap() > 0 {
            if said.lines().last().unwrap().contains(words) {
                return said;
            }
        }
        panic!("it ended without saying {words:?}, but:\n{said}");
    }

    pub fn pid(&self) -> Pid {
        Pid::from_child(self.process.as_ref().unwrap())
    }

    pub fn signal(&self, signal: Signal) {
        kill_process(self.pid(), signal).unwrap();
    }

    /// Kills it, as the kernel would.
    pub fn kill(&mut self) {
        if let Some(mut process) = self.process.take() {
            process.kill().unwrap();
            process.wait().unwrap();
            // A filler has the lock too until it runs its program, and the next broker wants it at once.
            if let Ok(lock) = File::open(self.path("socket.lock")) {
                until("its lock", || flock(&lock, FlockOperation::NonBlockingLockExclusive));
                flock(&lock, FlockOperation::Unlock).unwrap();
            }
        }
    }

    /// Waits for its end.
    pub fn wait(&mut self) -> bool {
        self.process.take().unwrap().wait().unwrap().success()
    }

    /// CPU time that it has taken, to a hundredth.
    pub fn cpu_seconds(&self) -> f64 {
        let stat = format!("/proc/{}/stat", self.pid().as_raw_nonzero());
        let stat = fs::read_to_string(stat).unwrap();
        // After the name, which may hold anything: 12 fields, then user and system time.
        let fields = stat.rsplit_once(')').unwrap().1.split_whitespace().skip(11).take(2);
        let ticks: u64 = fields.map(|ticks| ticks.parse::<u64>().unwrap()).sum();
        ticks as f64 / rustix::param::clock_ticks_per_second() as f64
    }

    /// Its fillers, at least `least` of them.
    pub fn wait_for_fillers(&self, least: usize) -> Vec<Pid> {
        until("fillers", || Some(self.fillers()).filter(|fillers| fillers.len() >= least))
    }

    /// Its fillers.
    pub fn fillers(&self) -> Vec<Pid> {
        let pid = self.pid();
        let children = fs::read_to_string(format!(
            "/proc/{pid}/task/{pid}/children",
            pid = pid.as_raw_nonzero()
        ));
        let children = children.unwrap_or_default();
        children
            .split_whitespace()
            .map(|pid| Pid::from_raw(pid.parse().unwrap()).unwrap())
            .collect()
    }

    /// Descriptors that it has open besides one for each piece of stock and each filler; `None`: something is leased,
    /// waited for or being made. A child that has ended and was not waited for is missing in the sum.
    pub fn held(&self) -> Option<usize> {
        let mut client = self.client();
        let stock = client.report(Report::Stock).unwrap();
        let open = fs::read_dir(format!("/proc/{}/fd", self.pid().as_raw_nonzero())).unwrap();
        let stock: serde_json::Value = serde_json::from_str(&stock).unwrap();
        let rows = |list: &str| stock[list].as_array().unwrap().len();
        let busy = ["making_bytes", "waiting"].into_iter().any(|sum| stock[sum] != 0);
        let open = open.count() - rows("ready");
        (!busy && rows("leased") == 0).then(|| open - self.fillers().len())
    }

    pub fn client(&self) -> Client {
        Client::connect(&self.socket()).unwrap()
    }

    pub fn lease(&self, mib: u64) -> Result<Lease, ClientError> {
        self.client().lease(want(mib), PATIENCE)
    }

    pub fn stock(&self) -> serde_json::Value {
        serde_json::from_str(&self.client().report(Report::Stock).unwrap()).unwrap()
    }

    /// The first report of which that is so: each look is a question to the broker.
    pub fn wait_for_stock(&self, is_so: impl Fn(&serde_json::Value) -> bool) -> serde_json::Value {
        until("the stock", || Some(self.stock()).filter(&is_so).ok_or_else(|| self.stock()))
    }

    /// Waits until `inodes` lie ready.
    pub fn wait_for_ready(&self, inodes: usize) {
        self.wait_for_stock(|stock| stock["ready"].as_array().unwrap().len() >= inodes);
    }

    pub fn counter(&self, name: &str) -> u64 {
        let text = self.client().report(Report::Metrics).unwrap();
        let line = text.lines().find_map(|line| line.strip_prefix(&format!("prezerod_{name} ")));
        line.unwrap_or_else(|| panic!("no {name} in {text}")).parse().unwrap()
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        self.kill();
    }
}

/// A process that can be waited for though it is no child.
pub fn watch(pid: Pid) -> OwnedFd {
    pidfd_open(pid, PidfdFlags::empty()).unwrap()
}

/// Waits until that process has ended.
pub fn ended(process: &OwnedFd) {
    let patience = Timespec::try_from(PATIENCE).unwrap();
    let n = poll(&mut [PollFd::from_borrowed_fd(process.as_fd(), PollFlags::IN)], Some(&patience));
    assert_eq!(n, Ok(1), "it lives on");
}

/// Asserts that every byte of a lease is zero, and writes over all of it.
pub fn use_up(lease: &Lease) {
    let map = lease.map().unwrap();
    // SAFETY: the lease is ours alone, mapped, and its size is sealed.
    let bytes = unsafe { std::slice::from_raw_parts_mut(map.base().as_ptr(), map.len()) };
    assert!(bytes.iter().all(|&byte| byte == 0), "a lease that is not zero");
    bytes.fill(0xa5);
}

pub fn exists(path: &Path) -> bool {
    path.symlink_metadata().is_ok()
}
