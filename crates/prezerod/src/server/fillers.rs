//! The filler processes: one for each node, priority, lane and payer, started when first needed.

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

#[derive(Debug)]
struct Filler {
    process: Child,
    socket: OwnedFd,
    serial: u64,
    /// A job is cancelled once: a second word would end the job after it.
    cancelled: bool,
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
            self.killed.retain_mut(|(_, process)| matches!(process.try_wait(), Ok(None)));
            if self.killed.iter().filter(|(killed, _)| *killed == payer).count() >= MOST_KILLED {
                return Err(io::Error::other(
                    "those in its cgroup were killed and have not ended; thaw that cgroup",
                ));
            }
            let filler = self.spawn(job, cgroup, files)?;
            self.fillers.insert(key, filler);
        }
        let Some(filler) = self.fillers.get_mut(&key) else { return Ok(()) };
        (filler.serial, filler.cancelled) = (job.serial, false);
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
        Ok(Filler { process, socket, serial: 0, cancelled: false })
    }

    /// Cancels that job, if it is still being made.
    pub fn cancel(&mut self, serial: u64) {
        let filler = self.fillers.values_mut().find(|f| f.serial == serial && !f.cancelled);
        if let Some(filler) = filler {
            filler.cancelled = true;
            // A filler that is gone will be noticed where its socket is polled.
            let _ = filler::send(filler.socket.as_fd(), &Order::Cancel, None);
        }
    }

    /// A client waits for that job by now. Said to a filler that is done with it, it is nothing.
    pub fn promote(&mut self, serial: u64) {
        let filler = self.fillers.values().find(|f| f.serial == serial && !f.cancelled);
        if let Some(filler) = filler {
            let _ = filler::send(filler.socket.as_fd(), &Order::Promote, None);
        }
    }

    /// What it says; `None`: it is gone.
    pub fn hear(&mut self, key: Key) -> Option<(Message, Option<OwnedFd>)> {
        let filler = self.fillers.get(&key)?;
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
        Some((word, inode))
    }

    /// Kills the filler of that job, which is no filler from now on. It may end later.
    pub fn kill(&mut self, serial: u64) {
        if let Some((&key, _)) = self.fillers.iter().find(|(_, filler)| filler.serial == serial)
            && let Some(Filler { mut process, .. }) = self.fillers.remove(&key)
        {
            let _ = process.kill();
            self.killed.push((key.payer, process));
        }
    }

    /// One is gone: its last job.
    pub fn reap(&mut self, key: Key) -> Option<u64> {
        let filler = self.fillers.get_mut(&key)?;
        let serial = filler.serial;
        let status = filler.process.try_wait();
        self.kill(serial);
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
    use prezero_testing::until;
    use rustix::process::{Pid, Signal, kill_process};

    #[test]
    fn a_filler_that_is_stopped_is_killed_without_a_wait_and_another_takes_its_place() {
        let mut fillers = Fillers::new("/bin/sh".into(), 1);
        let key = Key { node: 0, priority: Priority::Idle, lane: 0, payer: Payer(1) };
        let mut command = Command::new("sleep");
        let process = command.arg("1000").spawn().unwrap();
        let pid = Pid::from_child(&process);
        kill_process(pid, Signal::STOP).unwrap();
        let kind = (SocketType::SEQPACKET, SocketFlags::CLOEXEC);
        let (socket, _theirs) = socketpair(AddressFamily::UNIX, kind.0, kind.1, None).unwrap();
        let filler = Filler { process, socket, serial: 7, cancelled: false };
        fillers.fillers.insert(key, filler);
        fillers.kill(8);
        assert_eq!(fillers.iter().count(), 1, "another job's");
        fillers.kill(7);
        assert_eq!((fillers.iter().count(), fillers.killed.len()), (0, 1));
        until("its end", || {
            fillers.killed.retain_mut(|(_, process)| matches!(process.try_wait(), Ok(None)));
            fillers.killed.is_empty().then_some(())
        });
    }
}
