//! The filler processes: one for each node, priority, lane and payer, started when first needed.
//!
//! Contract: a filler lives while it has a job, and for [`REST_NS`] after its last. So a tenant that is gone leaves no
//! process in its cgroup, and the broker no descriptor.

use std::collections::BTreeMap;
use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SocketFlags, SocketType,
    recvmsg, socketpair,
};

use crate::filler::{self, MAX_PACKET, Message, Order, Priority};
use crate::inode::Kind;
use crate::planner::Job;
use crate::tenant::Payer;

/// Fillers of a payer that were killed and have not ended, beyond which no other is started: a busy host ends one
/// a moment later, a frozen cgroup none.
/// Fixed: a bound of processes.
const MOST_KILLED: usize = 4;
/// The time for which a filler without a job waits for the next, ns. Starting one takes some milliseconds.
/// Moved by: `tests/system/beside.py`.
const REST_NS: u64 = 60_000_000_000;

#[derive(Debug)]
struct Filler {
    process: Child,
    socket: OwnedFd,
    serial: u64,
    /// A job is cancelled once: a second word would end the job after it.
    cancelled: bool,
    /// Since when it has no job, ns.
    idle_since: Option<u64>,
}

/// See the module.
#[derive(Debug)]
pub struct Fillers {
    program: PathBuf,
    nodes: usize,
    fillers: BTreeMap<Key, Filler>,
    /// Those that were killed and have not ended: a cgroup of version 1 that is frozen keeps them.
    killed: Vec<(Payer, Child)>,
}

/// Which filler: its node, its priority, which of those, and whose cgroup it lives in.
#[derive(Clone, Copy, PartialEq, Eq, Debug, PartialOrd, Ord)]
pub struct Key {
    pub node: u16,
    pub priority: Priority,
    pub lane: u8,
    pub payer: Payer,
}

impl Fillers {
    /// None yet; each will run `program`, on a host of `nodes` nodes.
    pub fn new(program: PathBuf, nodes: usize) -> Fillers {
        Fillers { program, nodes, fillers: BTreeMap::new(), killed: vec![] }
    }

    /// Their sockets.
    pub fn iter(&self) -> impl Iterator<Item = (Key, BorrowedFd<'_>)> {
        self.fillers.iter().map(|(&key, filler)| (key, filler.socket.as_fd()))
    }

    /// Hands a job to the filler of its node, priority, lane and payer, which has none; `cgroup` is the
    /// payer's, `None` this one; `files` are its directories.
    pub fn order(&mut self, job: &Job, cgroup: Option<&str>, files: &[PathBuf]) -> io::Result<()> {
        let Job { priority, lane, kind: Kind { node, payer, .. }, .. } = *job;
        let key = Key { node, priority, lane, payer };
        if !self.fillers.contains_key(&key) {
            self.bury();
            if self.killed.iter().filter(|(killed, _)| *killed == payer).count() >= MOST_KILLED {
                return Err(io::Error::other(
                    "those in its cgroup were killed and have not ended; thaw that cgroup",
                ));
            }
            let filler = self.spawn(job, cgroup, files)?;
            self.fillers.insert(key, filler);
        }
        let Some(filler) = self.fillers.get_mut(&key) else { return Ok(()) };
        (filler.serial, filler.cancelled, filler.idle_since) = (job.serial, false, None);
        let Job { serial, kind, bytes, rate, busy_limit, .. } = *job;
        let order = Order::Make { serial, kind, bytes, rate, busy_limit };
        filler::send(filler.socket.as_fd(), &order, None)
    }

    fn spawn(&self, job: &Job, cgroup: Option<&str>, files: &[PathBuf]) -> io::Result<Filler> {
        let (kind, flags) = (SocketType::SEQPACKET, SocketFlags::CLOEXEC);
        let (socket, theirs) = socketpair(AddressFamily::UNIX, kind, flags, None)?;
        let mut command = Command::new(&self.program);
        command.arg("filler").arg(job.kind.node.to_string());
        if job.priority == Priority::Urgent {
            command.arg("--urgent");
        }
        if self.nodes > 1 {
            command.arg("--bind");
        }
        if let Some(cgroup) = cgroup {
            command.arg("--cgroup").arg(cgroup);
        }
        for dir in files {
            command.arg("--files").arg(dir);
        }
        // What is not ours must not look like the service itself.
        for name in ["NOTIFY_SOCKET", "LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES", "WATCHDOG_USEC"]
        {
            command.env_remove(name);
        }
        let process = command.stdin(Stdio::from(theirs)).spawn()?;
        Ok(Filler { process, socket, serial: 0, cancelled: false, idle_since: None })
    }

    /// Tells the filler of that job something of it, unless the job is cancelled. Said to one that is done with it, it is
    /// nothing.
    pub fn tell(&mut self, serial: u64, order: Order) {
        let filler = self.fillers.values_mut().find(|f| f.serial == serial && !f.cancelled);
        if let Some(filler) = filler {
            filler.cancelled = order == Order::Cancel;
            // A filler that is gone will be noticed where its socket is polled.
            let _ = filler::send(filler.socket.as_fd(), &order, None);
        }
    }

    /// What it says; `None`: it is gone.
    pub fn hear(&mut self, now: u64, key: Key) -> Option<(Message, Option<OwnedFd>)> {
        let filler = self.fillers.get_mut(&key)?;
        let mut packet = [0u8; MAX_PACKET];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let slices = &mut [IoSliceMut::new(&mut packet)];
        let received =
            recvmsg(&filler.socket, slices, &mut control, RecvFlags::CMSG_CLOEXEC).ok()?;
        let inode = control.drain().find_map(|message| match message {
            RecvAncillaryMessage::ScmRights(mut files) => files.next(),
            _ => None,
        });
        let word = serde_json::from_slice(&packet[..received.bytes]).ok()?;
        filler.idle_since = matches!(word, Message::Done(_)).then_some(now);
        Some((word, inode))
    }

    /// Ends those that had no job for long.
    pub fn rest(&mut self, now: u64) {
        let rested = |filler: &Filler| {
            filler.idle_since.is_some_and(|since| now.saturating_sub(since) >= REST_NS)
        };
        let all = self.fillers.iter().filter(|(_, filler)| rested(filler));
        all.map(|(key, _)| *key).collect::<Vec<_>>().into_iter().for_each(|key| self.end(key));
        self.bury();
    }

    /// That filler is none from now on. Its process may end later.
    fn end(&mut self, key: Key) {
        if let Some(Filler { mut process, .. }) = self.fillers.remove(&key) {
            let _ = process.kill();
            self.killed.push((key.payer, process));
        }
    }

    fn bury(&mut self) {
        self.killed.retain_mut(|(_, process)| matches!(process.try_wait(), Ok(None)));
    }

    /// Kills the filler of that job.
    pub fn kill(&mut self, serial: u64) {
        if let Some((&key, _)) = self.fillers.iter().find(|(_, filler)| filler.serial == serial) {
            self.end(key);
        }
    }

    /// One is gone: its last job.
    pub fn reap(&mut self, key: Key) -> Option<u64> {
        let filler = self.fillers.get_mut(&key)?;
        let serial = filler.serial;
        let status = filler.process.try_wait();
        self.end(key);
        let status = match status {
            Ok(Some(status)) => status.to_string(),
            _ => "its socket is closed".into(),
        };
        prezero_sys::log!("prezerod: the filler of node {} is gone: {status}", key.node);
        Some(serial)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::filler::{Done, Outcome};
    use prezero_testing::until;
    use rustix::process::{Pid, Signal, kill_process};

    /// Fillers of which one has the job 7; its process is stopped. And the other end of its socket.
    fn stopped() -> (Fillers, Key, OwnedFd) {
        let mut fillers = Fillers::new("/bin/sh".into(), 1);
        let key = Key { node: 0, priority: Priority::Idle, lane: 0, payer: Payer(1) };
        let process = Command::new("sleep").arg("1000").spawn().unwrap();
        kill_process(Pid::from_child(&process), Signal::STOP).unwrap();
        let (kind, flags) = (SocketType::SEQPACKET, SocketFlags::CLOEXEC);
        let (socket, theirs) = socketpair(AddressFamily::UNIX, kind, flags, None).unwrap();
        let filler = Filler { process, socket, serial: 7, cancelled: false, idle_since: None };
        fillers.fillers.insert(key, filler);
        (fillers, key, theirs)
    }

    fn ended(fillers: &mut Fillers) {
        assert_eq!((fillers.iter().count(), fillers.killed.len()), (0, 1));
        until("its end", || {
            fillers.bury();
            fillers.killed.is_empty().then_some(())
        });
    }

    #[test]
    fn a_filler_that_is_stopped_is_killed_without_a_wait_and_another_takes_its_place() {
        let (mut fillers, _, _theirs) = stopped();
        fillers.kill(8);
        assert_eq!(fillers.iter().count(), 1, "another job's");
        fillers.kill(7);
        ended(&mut fillers);
    }

    #[test]
    fn a_filler_ends_some_time_after_its_last_job_and_none_that_has_one() {
        let (mut fillers, key, theirs) = stopped();
        fillers.rest(u64::MAX);
        assert_eq!(fillers.iter().count(), 1, "it has a job");
        let done = Message::Done(Done { serial: 7, outcome: Outcome::Stopped });
        filler::send(theirs.as_fd(), &done, None).unwrap();
        assert!(fillers.hear(5, key).is_some());
        fillers.rest(4 + REST_NS);
        assert_eq!(fillers.iter().count(), 1, "the next job may come");
        fillers.rest(5 + REST_NS);
        ended(&mut fillers);
    }
}
