//! The loop: one thread, one `poll`, everything that the broker is told and sends.
//!
//! Nothing here blocks: a client that does not read its answers is dropped, a packet is
//! handled whole, a filler works in a process of its own, scrapers talk to a thread of theirs,
//! and what clients send besides frames is never received: another process closes it.

mod clients;
mod closing;
mod fillers;
mod http;
mod listen;
mod named;
mod parting;
mod persist;
pub mod rights;
mod scrapes;
mod service;
mod store;
mod tracker;
mod unread;

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use prezero_host::pressure::Pressure;
use prezero_sys::{peer, thread};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use crate::broker::Broker;
use crate::demand::Party;
use crate::filler::{Message, Order};
use crate::host::Host;
use crate::inode::mounted;
use crate::inode::named::LeaseDir;
use crate::settings::Settings;
use crate::tenant::ClientId;
use persist::Survival;
use service::{Inherited, Service};
use store::Kept;
use tracker::LeaseTracker;

use fillers::{Fillers, Key};
use http::Http;
pub use listen::{Listener, place};
use rights::FdCloser;
use unread::{Left, Unread};

/// The broker looks around this often while there is stock to look after.
/// Moved by: `ps -o cputime` of the broker.
const TICK_NS: u64 = 250_000_000;
/// And while there is not.
const IDLE_TICK_NS: u64 = 1_000_000_000;
/// However much happens, a look is no sooner than this after the one before: it asks the kernel about
/// memory, pools and cgroups for each request that waits.
/// Moved by: `tests/system/attack.py`.
const MIN_TICK_NS: u64 = 500_000;
/// Connections accepted before the others are looked at.
/// Moved by: `tests/system/attack.py`.
const ACCEPT_BATCH: usize = listen::BACKLOG as usize;

/// How the server was started.
#[derive(Debug)]
pub struct Options {
    /// The configuration file; `None`: there is none.
    pub config: Option<PathBuf>,
    /// The socket, if it was given.
    pub socket: Option<PathBuf>,
    /// The program that fillers run: this one.
    pub program: PathBuf,
}

/// One client.
#[derive(Debug)]
struct Connection {
    socket: OwnedFd,
    pid: i32,
    party: Party,
    /// The process, exactly that one; `None` on old kernels where it was gone already.
    process: Option<OwnedFd>,
    heard_ns: u64,
    unread: Unread,
    /// Since when it is shut, with descriptors in it: it is heard no more.
    parted_ns: Option<u64>,
}

/// What an event of `poll` is about.
#[derive(Clone, Copy, Debug)]
enum Source {
    Stop,
    Reload,
    Listener,
    Http,
    Verified,
    Filler(Key),
    Client(ClientId),
    Gone(ClientId),
    Holder(i32),
}

/// Connections, and what keeps them apart.
#[derive(Debug)]
struct Clients {
    listener: Listener,
    all: BTreeMap<ClientId, Connection>,
    /// Those that ended with leases unread.
    left: Left,
    closer: FdCloser,
    /// How often clients were heard.
    round: usize,
    /// No connection is accepted before this, ns.
    accept_backoff_until: u64,
}

/// What tells that leases are over.
#[derive(Debug, Default)]
struct Watch {
    /// Leases whose memory can be watched.
    tracker: LeaseTracker,
    /// Processes that got others.
    holders: BTreeMap<i32, OwnedFd>,
}

/// What signals are written to.
#[derive(Debug)]
struct Signals {
    stop: UnixStream,
    reload: UnixStream,
}

/// Everything.
#[derive(Debug)]
pub struct Server {
    options: Options,
    service: Service,
    broker: Broker<Kept>,
    pressure: Pressure,
    http: Http,
    fillers: Fillers,
    clients: Clients,
    watch: Watch,
    signals: Signals,
    survival: Survival,
    owner: u32,
    /// Something happened that may call for making, or allow to serve a request that waits.
    needs_tick: bool,
}

impl Server {
    /// Binds what must be bound, and takes over what an earlier broker left.
    ///
    /// # Errors
    /// What is in the way, in one line.
    pub fn start(options: Options) -> Result<Server, String> {
        let (service, inherited) = Service::take();
        let settings = read_settings(&options)?;
        let owner = rustix::process::getuid().as_raw();
        let signals = |numbers: &[i32]| -> io::Result<UnixStream> {
            let (read, write) = UnixStream::pair()?;
            read.set_nonblocking(true)?;
            for number in numbers {
                signal_hook::low_level::pipe::register(*number, write.try_clone()?)?;
            }
            Ok(read)
        };
        let signals = |numbers| signals(numbers).map_err(|error| format!("signals: {error}"));
        let (stop, reload) = (signals(&[SIGTERM, SIGINT])?, signals(&[SIGHUP])?);
        raise_file_limit();
        let Inherited { listener, metrics, stored: left } = inherited;
        let listener = match listener {
            Some(socket) => Listener::inherited(socket)?,
            None => Listener::bind(&listen::path(&options, &settings)?, settings.socket_mode)?,
        };
        let http = Http::start(metrics, settings.metrics.as_deref())?;
        let host = Host::new("/");
        let advice = host.advice();
        let now = thread::monotonic_ns();
        let tracker = LeaseTracker::new(service.store.clone());
        let closer = FdCloser::new(options.program.clone());
        let mut server = Server {
            fillers: Fillers::new(options.program.clone(), host.nodes().len()),
            broker: Broker::new(now, host, settings, owner),
            options,
            service,
            pressure: Pressure::new(std::path::Path::new("/")),
            http,
            clients: Clients {
                listener,
                all: BTreeMap::new(),
                left: Left::default(),
                closer,
                round: 0,
                accept_backoff_until: 0,
            },
            watch: Watch { tracker, holders: BTreeMap::new() },
            signals: Signals { stop, reload },
            survival: Survival::default(),
            owner,
            needs_tick: true,
        };
        server.take_over(now, left);
        for dir in server.broker.ledger().dirs() {
            mounted::clear(dir);
        }
        // What is unaccounted by now is no tenant's.
        server.broker.reconcile(now);
        prezero_sys::log!("prezerod: serving on {}", server.clients.listener);
        if let Some(advice) = advice {
            prezero_sys::log!("prezerod: {advice}");
        }
        server.log_unmet();
        server.service.tell("READY=1\nSTATUS=serving");
        Ok(server)
    }

    /// Serves until told to stop.
    ///
    /// # Errors
    /// What the kernel refuses to a loop that can do nothing else.
    pub fn run(mut self) -> io::Result<()> {
        let mut looked = 0;
        let mut pinged = 0;
        loop {
            let now = thread::monotonic_ns();
            let since = now.saturating_sub(looked);
            let due = self.needs_tick || self.broker.deadline().is_some_and(|until| until <= now);
            if since >= TICK_NS || (due && since >= MIN_TICK_NS) {
                looked = now;
                self.tick(now);
            }
            if let Some(watchdog) = self.service.watchdog
                && now.saturating_sub(pinged) >= watchdog.as_nanos() as u64
            {
                pinged = now;
                self.service.ping();
            }
            let (mut said, mut gone) = (vec![], vec![]);
            for source in self.wait(now, looked)? {
                match source {
                    Source::Stop => {
                        self.finish();
                        return Ok(());
                    }
                    Source::Reload => self.reload(),
                    // What a client asks stands behind its connection already.
                    Source::Listener => said.extend(self.accept()),
                    Source::Http => {
                        let text = self.broker.metrics(thread::monotonic_ns());
                        self.http.answer(text);
                    }
                    Source::Verified => self.hear_verified(),
                    Source::Filler(key) => self.hear_filler(key),
                    Source::Client(id) => said.push(id),
                    Source::Gone(id) => gone.push(id),
                    Source::Holder(pid) => {
                        self.watch.holders.remove(&pid);
                        self.broker.exited(now, pid);
                    }
                }
            }
            self.reap_clients(gone);
            self.hear_clients(said);
        }
    }

    /// Waits for something to happen.
    fn wait(&self, now: u64, looked: u64) -> io::Result<Vec<Source>> {
        let mut sources = vec![Source::Stop, Source::Reload];
        let mut fds: Vec<BorrowedFd<'_>> =
            vec![self.signals.stop.as_fd(), self.signals.reload.as_fd()];
        let mut add = |source, fd| {
            sources.push(source);
            fds.push(fd);
        };
        let backs_off = now < self.clients.accept_backoff_until;
        if !backs_off {
            add(Source::Listener, self.clients.listener.as_fd());
        }
        if let Some(wanted) = self.http.wanted() {
            add(Source::Http, wanted);
        }
        if let Some(wanted) = self.survival.verifying.wanted() {
            add(Source::Verified, wanted);
        }
        self.fillers.iter().for_each(|(key, fd)| add(Source::Filler(key), fd));
        self.watch
            .holders
            .iter()
            .for_each(|(&pid, process)| add(Source::Holder(pid), process.as_fd()));
        let open = self.clients.all.iter().filter(|(_, one)| one.parted_ns.is_none());
        for (&id, connection) in open {
            add(Source::Client(id), connection.socket.as_fd());
        }
        let mut polled: Vec<_> =
            fds.iter().map(|fd| PollFd::from_borrowed_fd(*fd, PollFlags::IN)).collect();
        let busy = backs_off || self.broker.is_busy();
        let look = now + if busy { TICK_NS } else { IDLE_TICK_NS };
        let until = match self.needs_tick {
            true => looked + MIN_TICK_NS,
            false => self
                .broker
                .deadline()
                .map_or(look, |until| until.max(looked + MIN_TICK_NS).min(look)),
        };
        let timeout = Duration::from_nanos(until.saturating_sub(now));
        match poll(&mut polled, Timespec::try_from(timeout).ok().as_ref()) {
            Ok(_) => {}
            Err(Errno::INTR) => return Ok(vec![]),
            Err(error) => return Err(error.into()),
        }
        let ready = polled.iter().zip(sources).filter(|(fd, _)| !fd.revents().is_empty());
        // A request of a client that has gone takes no turn.
        let source = |(fd, source): (&PollFd<'_>, Source)| match source {
            Source::Client(id) if fd.revents().contains(PollFlags::HUP) => Source::Gone(id),
            source => source,
        };
        Ok(ready.map(source).collect())
    }

    /// Serves requests that wait, gives back, orders, closes silent connections.
    fn tick(&mut self, now: u64) {
        self.needs_tick = false;
        for out in self.broker.serve(now) {
            self.deliver(out);
        }
        let memory = self.pressure.sample(now).memory;
        let plan = self.broker.plan(now, minute_of_day(), memory);
        for out in plan.outs {
            self.deliver(out);
        }
        for serial in plan.silent {
            self.fillers.kill(serial);
            if let Some(why) = self.broker.fell_silent(now, serial) {
                prezero_sys::log!("prezerod: {why}");
            }
        }
        let cancelled = plan.cancel.into_iter().map(|serial| (serial, Order::Cancel));
        let promoted = plan.promote.into_iter().map(|serial| (serial, Order::Promote));
        cancelled.chain(promoted).for_each(|(serial, order)| self.fillers.tell(serial, order));
        for job in plan.jobs {
            let cgroup = self.broker.ledger().charged(job.kind.payer);
            let files = self.broker.ledger().files(job.kind.payer);
            if let Err(error) = self.fillers.order(&job, cgroup, files) {
                prezero_sys::log!("prezerod: filler: {error}");
                self.broker.failed(now, job.serial, format!("no filler: {error}"));
            }
        }
        let idle = self.broker.settings().idle.as_nanos() as u64;
        let silent = |(id, connection): (&ClientId, &Connection)| {
            let silent = now.saturating_sub(connection.heard_ns) > idle;
            (silent && !self.broker.waits(*id)).then_some(*id)
        };
        let silent: Vec<_> = self.clients.all.iter().filter_map(silent).collect();
        for id in silent {
            self.drop_client(id);
        }
        self.reap_leases(now);
        for dir in self.broker.ledger().dirs() {
            mounted::reap(dir);
        }
        self.clients.left.look();
        self.fillers.rest(now);
        self.close_parted(now);
        self.service.store.flush();
        self.broker.keep();
        self.watch.tracker.keep();
        self.save();
    }

    /// Leases whose memory is gone are over.
    fn reap_leases(&mut self, now: u64) {
        for lease in self.watch.tracker.over(now) {
            self.broker.ended(now, lease);
        }
        self.broker.reconcile(now);
    }

    fn hear_filler(&mut self, key: Key) {
        let now = thread::monotonic_ns();
        match self.fillers.hear(now, key) {
            Some((Message::Progress(progress), _)) => self.broker.progress(now, progress),
            Some((Message::Done(done), inode)) => {
                self.needs_tick = true;
                let inode = inode.map(|inode| Kept::new(inode, &self.service.store));
                self.broker.done(now, done, inode);
            }
            None => {
                self.needs_tick = true;
                if let Some(serial) = self.fillers.reap(key) {
                    self.broker.died(now, serial);
                }
            }
        }
    }

    fn reload(&mut self) {
        drain(&self.signals.reload);
        self.needs_tick = true;
        match read_settings(&self.options) {
            Ok(settings) => {
                for key in settings.need_restart(self.broker.settings()) {
                    prezero_sys::log!("prezerod: {key} has changed; restart prezerod for that");
                }
                self.broker.reload(settings, self.owner);
                for (&id, one) in &mut self.clients.all {
                    let groups = || peer::peer_groups(one.socket.as_fd()).unwrap_or_default();
                    one.party = self.broker.regroup(id, groups);
                }
                prezero_sys::log!("prezerod: configuration read again");
                self.log_unmet();
            }
            Err(error) => prezero_sys::log!("prezerod: {error}; the configuration stays as it was"),
        }
    }

    /// What the configuration wants and the host has not: served all the same, for both may change.
    fn log_unmet(&self) {
        let (wrong, foreign) = LeaseDir::faults(self.broker.ledger().dirs());
        for line in self.broker.unmet().iter().chain(&wrong).chain(&foreign) {
            prezero_sys::log!("prezerod: {line}");
        }
    }

    /// An orderly end: the stock is in the service manager's store, or goes to the kernel.
    fn finish(mut self) {
        self.service.tell("STOPPING=1");
        self.save_last();
        self.service.store.close();
        if self.service.store.is_there() {
            // A message of a process that has ended belongs to no service, and the manager drops it.
            let _ = self.service.barrier();
        }
        self.clients.listener.close();
        self.http.close();
    }
}

/// By the wall clock, UTC.
fn minute_of_day() -> u16 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    (since.as_secs() / 60 % (24 * 60)) as u16
}

/// Settings of the file, or the standard ones.
fn read_settings(options: &Options) -> Result<Settings, String> {
    match &options.config {
        Some(path) => Settings::read(path),
        None => Ok(Settings::default()),
    }
}

fn drain(signals: &UnixStream) {
    let mut bytes = [0u8; 64];
    while matches!(rustix::io::read(signals, &mut bytes), Ok(n) if n > 0) {}
}

/// Each inode, client and holder is an open file: as many as the administrator allows.
fn raise_file_limit() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
}
