//! The process that populates inodes, and how it is told to.
//!
//! A process of its own, not a thread: it is of the idle class, and one that is kept from its
//! CPU in the middle of a system call keeps the locks of its address space, for which the
//! broker would wait. It is also what the kernel should kill first when memory runs out, and
//! what a fault in half-made memory may take down: the broker starts another.
//!
//! It dies with the broker. It speaks JSON packets over its standard input, one job at a
//! time, says now and then how far that is and what holds it back, and keeps neither mapping
//! nor descriptor of what it has handed over.

mod backoff;
pub mod pacer;
mod retries;

use std::io::{self, IoSlice, Stdin};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::Duration;

use prezero_host::pressure::{Memory, Pressure};
use prezero_sys::thread::SchedClass;
use prezero_sys::{shared, thread};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, recv, sendmsg};
use serde::{Deserialize, Serialize};

use self::pacer::{BusyLimit, Pacer, Step, Throttle};
use self::retries::Retries;
use crate::host::Host;
use crate::host::cgroup::Cgroups;
use crate::host::neighbours::{Neighbours, SAMPLE_NS};
use crate::inode::named::LeaseDir;
use crate::inode::{Kind, Making};

/// Bytes that are populated between two looks at everything else. Each `MADV_COLLAPSE` waits until
/// all CPUs have drained their LRU lists, which looks like a CPU that is wanted.
/// Moved by: `bench fill`.
const STEP: u64 = 64 << 20;
/// How soon after one word of a job another may follow because something else holds it, ns.
const TELL_NS: u64 = 250_000_000;
/// A filler that has a CPU says how far its job is twice in this time, ns.
pub const LONGEST_SILENCE_NS: u64 = 1_000_000_000;
/// Longest packet between broker and filler, bytes.
pub const MAX_PACKET: usize = 1024;

/// How eager a filler is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub enum Priority {
    /// For stock: idle class but for its part of a busy host, steps aside, keeps to the rate.
    Idle,
    /// For a client that waits: as any other process.
    Urgent,
}

/// What a filler is asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Order {
    /// An inode of `bytes`.
    Make {
        /// The broker's number for it.
        serial: u64,
        /// Of this kind.
        kind: Kind,
        /// So large.
        bytes: u64,
        /// The most bytes a second.
        rate: Option<u64>,
        /// How much of it while others work on the node; `None`: a client waits.
        busy_limit: Option<BusyLimit>,
    },
    /// A client waits for the job: no regard for others.
    Promote,
    /// Forget the job.
    Cancel,
}

/// What became of it. With `Made` comes the inode.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Outcome {
    /// Done.
    Made {
        /// CPU time it took, ns.
        cpu_ns: u64,
        /// Time it took, ns, less what it held back because others worked.
        wall_ns: u64,
    },
    /// Cancelled, or stopped because memory is short.
    Stopped,
    /// The kernel has no such page left.
    Exhausted,
    /// The kernel refused otherwise.
    Refused(String),
}

/// An outcome and whose it is.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Done {
    /// As ordered.
    pub serial: u64,
    /// See there.
    pub outcome: Outcome,
}

/// How far a job is, from time to time while it goes on.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Progress {
    /// As ordered.
    pub serial: u64,
    /// Bytes that are still to be made.
    pub left: u64,
    /// What holds it back.
    pub throttle: Option<Throttle>,
    /// To this number of bytes a second, if it is known.
    pub pace: Option<u64>,
}

/// What a filler says.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Message {
    /// The job goes on.
    Progress(Progress),
    /// It is over.
    Done(Done),
}

/// A filler's life: until its standard input, a packet socket, is closed.
///
/// # Errors
/// What the socket answers; the process is of no use then.
pub fn run(
    priority: Priority,
    node: u16,
    bind: Binding,
    cgroup: Option<&str>,
    files: Vec<PathBuf>,
) -> io::Result<()> {
    let input = io::stdin();
    rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL))?;
    thread::name_current(if priority == Priority::Idle {
        c"prezero-fill"
    } else {
        c"prezero-order"
    });
    // First of all: what it touches is charged from here on.
    let cgroups = Cgroups::new(Path::new("/"));
    let entered = cgroup.map_or(Ok(()), |cgroup| cgroups.enter(cgroup));
    // A filler that may not lower itself is only less polite.
    if priority == Priority::Idle {
        let _ = thread::become_idle_class();
    }
    let _ = std::fs::write("/proc/self/oom_score_adj", "1000");
    if bind == Binding::Node {
        shared::bind_memory(usize::from(node))?;
        // Its CPUs clear its memory fastest; where they may not be used any other will do.
        let cpus = Host::new("/").cpus(node).into_iter().map(usize::from);
        let _ = thread::set_affinity(&thread::CpuMask::of(cpus));
    }
    let host = Host::new("/");
    let tick_ns = 1_000_000_000 / rustix::param::clock_ticks_per_second().max(1);
    let mut worker = Worker {
        input,
        priority,
        pressure: Pressure::new(Path::new("/")),
        neighbours: Neighbours::new(host.cpus(node), tick_ns),
        host,
        pacer: Pacer::default(),
        is_normal: false,
        each_ns: 0.0,
        reported: Reported::default(),
        files,
    };
    while let Some(order) = receive(&worker.input, Patience::Forever)? {
        let Order::Make { serial, kind, bytes, rate, busy_limit } = order else { continue };
        let charged = match (&entered, cgroup) {
            (Ok(()), Some(cgroup)) => cgroups.charges(cgroup, kind.backing, kind.page),
            (entered, _) => entered.clone(),
        };
        let (outcome, inode) = match charged {
            Err(what) => (Outcome::Refused(what), None),
            Ok(()) => {
                worker.reported = Reported::new(serial, thread::monotonic_ns());
                worker.make(kind, bytes, rate, busy_limit)?
            }
        };
        let inode = inode.as_ref().map(AsFd::as_fd);
        send(worker.input.as_fd(), &Message::Done(Done { serial, outcome }), inode)?;
    }
    Ok(())
}

/// Whether the host has several nodes to choose from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Binding {
    /// One node: no policy is needed.
    None,
    /// Memory of the filler's node only.
    Node,
}

/// A filler and what it knows of its surroundings, from job to job.
struct Worker {
    input: Stdin,
    priority: Priority,
    pressure: Pressure,
    neighbours: Neighbours,
    host: Host,
    pacer: Pacer,
    /// In the class of other processes for now.
    is_normal: bool,
    /// CPU time of the last step for each byte, ns.
    each_ns: f64,
    reported: Reported,
    /// Directories in which inodes are files; none: inodes are memfds.
    files: Vec<PathBuf>,
}

/// What the broker was told of a job.
#[derive(Debug, Default)]
struct Reported {
    serial: u64,
    at: u64,
    throttle: Option<Throttle>,
}

impl Reported {
    fn new(serial: u64, now: u64) -> Reported {
        // What holds it from its beginning is told at once.
        Reported { serial, at: now.saturating_sub(TELL_NS), throttle: None }
    }

    /// Whether it should hear of that now.
    fn is_due(&self, now: u64, throttle: Option<Throttle>) -> bool {
        let since = now.saturating_sub(self.at);
        since >= LONGEST_SILENCE_NS / 2 || (since >= TELL_NS && throttle != self.throttle)
    }
}

/// What came of waiting for the next step.
enum Wait {
    /// It may begin; the time for which only others were in its way, ns.
    Over { held_ns: u64 },
    /// Not that one, nor any after it.
    Stopped,
}

impl Worker {
    fn make(
        &mut self,
        kind: Kind,
        bytes: u64,
        rate: Option<u64>,
        mut busy_limit: Option<BusyLimit>,
    ) -> io::Result<(Outcome, Option<OwnedFd>)> {
        let (began, cpu_began) = (thread::monotonic_ns(), thread::thread_cpu_ns());
        let place = match self.files.is_empty() {
            true => None,
            false => match LeaseDir::for_page(&self.files, kind.page) {
                Ok(place) => Some(place),
                Err(text) => return Ok((Outcome::Refused(text), None)),
            },
        };
        let begun = match &place {
            None => Making::begin(kind, bytes),
            Some(place) => Making::begin_in(place, kind, bytes),
        };
        let mut making = match begun {
            Ok(making) => making,
            Err(error) => return Ok((refusal(&error), None)),
        };
        let (mut left, mut held) = (bytes, 0);
        let mut retries = Retries::new();
        self.rank(busy_limit);
        while left > 0 {
            match self.wait(left, rate, &mut busy_limit)? {
                Wait::Over { held_ns } => held += held_ns,
                Wait::Stopped => return Ok((Outcome::Stopped, None)),
            }
            let (began, cpu, before) = (thread::monotonic_ns(), thread::thread_cpu_ns(), left);
            left = match making.step(STEP) {
                Ok(left) => left,
                Err(error) => {
                    // Stock is made later; a client that waits is not told to ask again at once.
                    let errno = Errno::from_io_error(&error).filter(|_| busy_limit.is_none());
                    let Some(pause) = retries.after(thread::monotonic_ns(), kind, errno) else {
                        return Ok((refusal(&error), None));
                    };
                    std::thread::sleep(Duration::from_nanos(pause));
                    continue;
                }
            };
            retries = Retries::new();
            let (ended, cpu_ns) = (thread::monotonic_ns(), thread::thread_cpu_ns() - cpu);
            if self.priority == Priority::Idle {
                let step = Step { began, ended, cpu_ns, bytes: before - left };
                self.pacer.stepped(step, rate, busy_limit, self.neighbours.cpus());
                self.rank(busy_limit);
                self.each_ns = cpu_ns as f64 / (before - left).max(1) as f64;
                if left > 0 && self.pressure.sample(ended).memory == Memory::Tight {
                    return Ok((Outcome::Stopped, None));
                }
            }
        }
        let outcome = Outcome::Made {
            cpu_ns: thread::thread_cpu_ns() - cpu_began,
            wall_ns: (thread::monotonic_ns() - began).saturating_sub(held),
        };
        match making.finish() {
            Ok(inode) => Ok((outcome, Some(inode))),
            Err(error) => Ok((refusal(&error), None)),
        }
    }

    /// Takes the class that its part of a busy host needs: one of the idle class would wait for a CPU even to
    /// look about. Without the right to (`RLIMIT_NICE`) it stays in the idle class.
    fn rank(&mut self, busy_limit: Option<BusyLimit>) {
        let due = self.pacer.is_due(busy_limit, self.neighbours.are_busy());
        if self.priority == Priority::Idle && due != self.is_normal {
            self.is_normal = due;
            thread::hurry(
                thread::current_id(),
                if due { SchedClass::Normal } else { SchedClass::Idle },
            );
        }
    }

    /// Bytes a second on this node while others work there; `None`: not known.
    fn pace(&self, busy_limit: Option<BusyLimit>) -> Option<u64> {
        let cpus = self.neighbours.cpus();
        match busy_limit? {
            BusyLimit::Rate(each) => Some(each.saturating_mul(cpus)),
            BusyLimit::Cpu(percent) => (self.each_ns > 0.0)
                .then(|| (f64::from(percent) / 100.0 * cpus as f64 * 1e9 / self.each_ns) as u64)
                .map(|pace| pace.next_multiple_of(1 << 20)),
        }
    }

    /// Until the next step may begin, with so much left to make.
    fn wait(
        &mut self,
        left: u64,
        rate: Option<u64>,
        busy_limit: &mut Option<BusyLimit>,
    ) -> io::Result<Wait> {
        let began = thread::monotonic_ns();
        loop {
            let now = thread::monotonic_ns();
            if self.priority == Priority::Idle
                && busy_limit.is_some()
                && self.neighbours.is_due(now)
            {
                let stat = self.host.cpu_times();
                self.neighbours.look(now, thread::thread_cpu_ns(), &stat);
            }
            let free_at = self.pacer.free_at();
            let beside = busy_limit.is_some() && self.neighbours.are_busy();
            let due = if beside { self.pacer.busy_at() } else { free_at };
            let throttle = self.pacer.throttle(now, beside);
            if self.reported.is_due(now, throttle) {
                let pace = match throttle {
                    Some(Throttle::Rate) => rate,
                    Some(Throttle::Neighbours) => self.pace(*busy_limit),
                    Some(Throttle::Cpu) | None => None,
                };
                let progress = Progress { serial: self.reported.serial, left, throttle, pace };
                send(self.input.as_fd(), &Message::Progress(progress), None)?;
                (self.reported.at, self.reported.throttle) = (now, throttle);
            }
            let patience = Patience::Ns(due.saturating_sub(now).min(SAMPLE_NS));
            match receive(&self.input, patience) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    if now >= due {
                        return Ok(Wait::Over { held_ns: now.saturating_sub(began.max(free_at)) });
                    }
                }
                Ok(Some(Order::Promote)) => {
                    *busy_limit = None;
                    self.pacer.promote();
                }
                // A closed socket, or any other word while a job goes on, is the end of the job.
                Ok(_) => return Ok(Wait::Stopped),
                Err(error) => return Err(error),
            }
        }
    }
}

fn refusal(error: &io::Error) -> Outcome {
    match Errno::from_io_error(error) {
        Some(Errno::NOSPC | Errno::NOMEM | Errno::AGAIN | Errno::BUSY) => Outcome::Exhausted,
        Some(Errno::INVAL) => Outcome::Refused(match Host::new("/").shmem_mend() {
            Some(mend) => format!("transparent pages of shared memory are denied here; {mend}"),
            None => "this kernel makes no huge pages of a memfd (MADV_COLLAPSE is of Linux 6.1); set \
                     backing = \"tmpfs\" and run prezerod as root, or reserve pages: vm.nr_hugepages"
                .into(),
        }),
        Some(Errno::FBIG) => Outcome::Refused(
            "prezerod may make no file of that size; raise its limit of files (ulimit -f)".into(),
        ),
        Some(Errno::PERM) => Outcome::Refused(
            "`files` and backing = \"tmpfs\" mount a file system for each lease; run prezerod with \
             CAP_SYS_ADMIN"
                .into(),
        ),
        _ => Outcome::Refused(error.to_string()),
    }
}

enum Patience {
    Forever,
    Ns(u64),
}

/// The next order; `None` when the broker is gone.
fn receive(input: &Stdin, patience: Patience) -> io::Result<Option<Order>> {
    let timeout = match patience {
        Patience::Forever => None,
        Patience::Ns(ns) => Timespec::try_from(Duration::from_nanos(ns)).ok(),
    };
    loop {
        match poll(&mut [PollFd::new(input, PollFlags::IN)], timeout.as_ref()) {
            Err(Errno::INTR) => {}
            Ok(0) => return Err(io::ErrorKind::WouldBlock.into()),
            Ok(_) => break,
            Err(error) => return Err(error.into()),
        }
    }
    let mut packet = [0u8; MAX_PACKET];
    let (len, _) = recv(input, &mut packet, RecvFlags::empty())?;
    if len == 0 {
        return Ok(None);
    }
    Ok(Some(serde_json::from_slice(&packet[..len])?))
}

/// Sends one packet of JSON, and a descriptor with it if there is one. Shared with the broker.
///
/// # Errors
/// What `sendmsg` answers.
pub fn send(
    socket: BorrowedFd<'_>,
    message: &impl Serialize,
    inode: Option<BorrowedFd<'_>>,
) -> io::Result<()> {
    send_packet(socket, &serde_json::to_vec(message)?, inode, SendFlags::NOSIGNAL)?;
    Ok(())
}

/// Sends one packet, and a descriptor with it if there is one.
///
/// # Errors
/// What `sendmsg` answers.
pub fn send_packet(
    socket: BorrowedFd<'_>,
    packet: &[u8],
    inode: Option<BorrowedFd<'_>>,
    flags: SendFlags,
) -> Result<(), Errno> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let inodes: Vec<_> = inode.into_iter().collect();
    if !inodes.is_empty() && !control.push(SendAncillaryMessage::ScmRights(&inodes)) {
        return Err(Errno::NOBUFS);
    }
    loop {
        match sendmsg(socket, &[IoSlice::new(packet)], &mut control, flags) {
            Err(Errno::INTR) => {}
            // A packet socket sends all of a packet or nothing.
            other => return other.map(drop),
        }
    }
}
