//! Descriptors that clients send with their requests, and that the broker has no use for.
//!
//! Closing one may take as long as its owner likes: a TCP socket that lingers, a file of a file
//! system that never answers. Since Linux 6.16 a socket refuses them (`SO_PASSRIGHTS`), and what connects to one
//! that refuses inherits that. Elsewhere, and from clients that connected before, they lie in the socket's queue.
//!
//! Contract: the broker never receives one, and never closes the socket in which one lies. It looks at each packet first.
//! A process that ends at once gets the socket, and the kernel closes there what the socket holds: as it ends, no TCP
//! socket lingers, and a file system that waits holds up that process alone.

use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use prezero_sys::peer;
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendFlags,
    SocketFlags, SocketType, recv, recvmsg, socketpair,
};

use crate::filler::send_packet;

/// A process is started once in this time, ns.
const EACH_NS: u64 = 100_000_000;
/// Processes that may be ending at a time: one may hang.
const ENDING: usize = 8;
/// The time that a client has to read its last answer, ns.
const LAST_NS: u64 = 1_000_000_000;
/// Sockets that may wait for a process, besides those of clients that have a place: none is accepted beyond.
/// Moved by: `cargo test -p prezerod rights`.
const WAITING: usize = 256;

/// What lies first in a socket's queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Packet {
    /// A packet of this length, which was received; 0: the end.
    Frame(usize),
    /// One with descriptors, which lies there still.
    Rights,
}

/// Receives a packet without descriptors; waits for none.
pub fn receive(socket: BorrowedFd<'_>, packet: &mut [u8]) -> Result<Packet, Errno> {
    let flags = RecvFlags::DONTWAIT;
    let mut no_space = RecvAncillaryBuffer::default();
    let slices = &mut [IoSliceMut::new(packet)];
    let seen = recvmsg(socket, slices, &mut no_space, flags | RecvFlags::PEEK)?;
    if seen.flags.contains(ReturnFlags::CTRUNC) {
        return Ok(Packet::Rights);
    }
    if seen.bytes > 0 {
        // No other process reads this socket: it is the same packet.
        recv(socket, &mut [0u8; 0], flags)?;
    }
    Ok(Packet::Frame(seen.bytes))
}

/// Whether nothing lies in the queue of a socket that gives no more frames: an empty packet looks like the end. The
/// socket is heard no more afterwards.
pub fn is_empty(socket: BorrowedFd<'_>) -> bool {
    if peer::stamp_packets(socket).is_err() {
        return false;
    }
    // The time of a packet finds no room either.
    matches!(receive(socket, &mut [0u8; 0]), Ok(Packet::Frame(0)) | Err(Errno::AGAIN))
}

/// A socket that another process has to close.
#[derive(Debug)]
struct Waiting {
    socket: OwnedFd,
    since: u64,
}

/// Whether a client has read all that it was sent, or had the time for it since then.
pub fn is_heard(socket: impl AsFd, now: u64, since: u64) -> bool {
    now.saturating_sub(since) >= LAST_NS || peer::unread_bytes(socket.as_fd()) == Ok(0)
}

/// Closes sockets in another process.
#[derive(Debug)]
pub struct FdCloser {
    program: PathBuf,
    waiting: Vec<Waiting>,
    ending: Vec<Child>,
    worked: u64,
}

impl FdCloser {
    /// Its processes will run `program`.
    pub fn new(program: PathBuf) -> FdCloser {
        FdCloser { program, waiting: vec![], ending: vec![], worked: 0 }
    }

    /// To be closed once its client has read its last answer.
    pub fn take(&mut self, now: u64, socket: OwnedFd) {
        self.waiting.push(Waiting { socket, since: now });
    }

    /// Whether a process may be started now.
    pub fn is_ready(&mut self, now: u64) -> bool {
        self.ending.retain_mut(|process| matches!(process.try_wait(), Ok(None)));
        now.saturating_sub(self.worked) >= EACH_NS && self.ending.len() < ENDING
    }

    /// Whether no more sockets should come.
    pub fn is_full(&self) -> bool {
        self.waiting.len() >= WAITING
    }

    /// Hands over what has come together, and others that are to be closed now.
    pub fn work(&mut self, now: u64, others: Vec<OwnedFd>) {
        self.worked = now;
        let (mut sockets, mut early) = (others, vec![]);
        for one in self.waiting.drain(..) {
            match is_heard(&one.socket, now, one.since) {
                true => sockets.push(one.socket),
                false => early.push(one),
            }
        }
        if !sockets.is_empty()
            && let Err(error) = self.hand_over(&mut sockets)
        {
            prezero_sys::log!("prezerod: descriptors of clients stay open: {error}");
        }
        // Those that are left go with the next process.
        let left = sockets.into_iter().map(|socket| Waiting { socket, since: 0 });
        self.waiting.extend(left.chain(early));
    }

    /// Starts a process that gets these sockets; those that it did not get are left.
    fn hand_over(&mut self, sockets: &mut Vec<OwnedFd>) -> io::Result<()> {
        let (kind, flags) = (SocketType::SEQPACKET, SocketFlags::CLOEXEC);
        let (ours, theirs) = socketpair(AddressFamily::UNIX, kind, flags, None)?;
        self.start(theirs, Stdio::inherit())?;
        let (mut at, mut alone) = (0, false);
        while at < sockets.len() {
            let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
            match send_packet(ours.as_fd(), b"x", Some(sockets[at].as_fd()), flags) {
                Ok(()) => drop(sockets.swap_remove(at)),
                // Sockets lie within it, too deep for the kernel to send it on. One in a round: each costs a process.
                Err(Errno::TOOMANYREFS) if !alone => {
                    alone = true;
                    self.inherit(&sockets[at])?;
                    drop(sockets.swap_remove(at));
                }
                Err(Errno::AGAIN) => break,
                Err(_) => at += 1,
            }
        }
        Ok(())
    }

    /// A process that has this socket for standard output, and ends at once.
    fn inherit(&mut self, socket: &OwnedFd) -> io::Result<()> {
        let (_, ended) = UnixStream::pair()?;
        self.start(ended.into(), Stdio::from(socket.try_clone()?))
    }

    /// A process that ends once its standard input does.
    fn start(&mut self, input: OwnedFd, output: Stdio) -> io::Result<()> {
        let mut command = Command::new(&self.program);
        command.arg("close-fds").stdin(Stdio::from(input)).stdout(output);
        self.ending.push(command.spawn()?);
        Ok(())
    }
}

/// The life of that process: until its standard input is closed.
///
/// # Errors
/// What the socket answers.
pub fn close_all() -> io::Result<()> {
    let input = io::stdin();
    rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL))?;
    loop {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let mut packet = [0u8; 1];
        let slices = &mut [IoSliceMut::new(&mut packet)];
        let received = recvmsg(input.as_fd(), slices, &mut control, RecvFlags::CMSG_CLOEXEC)?;
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(files) = message {
                // The kernel closes them, as the process ends.
                files.for_each(std::mem::forget);
            }
        }
        if received.bytes == 0 {
            return Ok(());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use prezero_testing::alone;
    use std::io::Read;

    const LATER_NS: u64 = LAST_NS + EACH_NS;
    /// A program that reads its standard input to the end, as `prezerod` does. One that ends earlier gets no socket: the
    /// closer keeps it for the next process.
    const READS: &str = "/bin/grep";

    /// The kernel closes the other end with the last one that has it open.
    fn pair() -> (UnixStream, OwnedFd) {
        let (theirs, ours) = UnixStream::pair().unwrap();
        theirs.set_nonblocking(true).unwrap();
        (theirs, ours.into())
    }

    #[test]
    fn a_client_has_a_time_to_read_its_answer_before_its_socket_goes() {
        let _alone = alone();
        let mut closer = FdCloser::new(READS.into());
        let (mut theirs, ours) = pair();
        rustix::io::write(&ours, b"x").unwrap();
        closer.take(1, ours);
        closer.work(EACH_NS, vec![]);
        assert_eq!(closer.waiting.len(), 1);
        theirs.read_exact(&mut [0]).unwrap();
        closer.work(2 * EACH_NS, vec![]);
        assert!(closer.waiting.is_empty());

        let (_theirs, ours) = pair();
        rustix::io::write(&ours, b"x").unwrap();
        closer.take(1, ours);
        closer.work(1 + LAST_NS, vec![]);
        assert!(closer.waiting.is_empty(), "it does not read");
    }

    #[test]
    fn what_no_process_got_goes_with_the_next() {
        let _alone = alone();
        let mut closer = FdCloser::new("/nosuch".into());
        let (mut theirs, ours) = pair();
        closer.take(1, ours);
        closer.work(LATER_NS, vec![]);
        assert_eq!(closer.waiting.len(), 1);
        closer.program = READS.into();
        closer.work(2 * LATER_NS, vec![]);
        assert!(closer.waiting.is_empty());
        theirs.set_nonblocking(false).unwrap();
        assert_eq!(theirs.read(&mut [0]).unwrap(), 0);
    }

    #[test]
    fn processes_that_hang_are_few_and_turned_away_sockets_are_bounded() {
        let _alone = alone();
        let dir = tempfile::tempdir().unwrap();
        let (program, pid) = (dir.path().join("hangs"), std::process::id());
        let text =
            format!("#!/bin/sh\nwhile kill -0 {pid} 2>&- && test -e \"$0\"; do sleep 0.05; done");
        prezero_testing::script::write(&program, &text);
        let mut closer = FdCloser::new(program);
        let mut now = 0;
        for _ in 0..ENDING {
            now += LATER_NS;
            assert!(closer.is_ready(now));
            closer.work(now, vec![pair().1]);
        }
        assert!(!closer.is_ready(now + LATER_NS) && !closer.is_full());
        (0..WAITING).for_each(|_| closer.take(now, pair().1));
        assert!(closer.is_full());
    }

    #[test]
    fn a_socket_that_cannot_be_sent_on_is_inherited_by_a_process_that_ends() {
        let _alone = alone();
        let mut closer = FdCloser::new("/bin/true".into());
        let (theirs, ours) = pair();
        closer.inherit(&ours).unwrap();
        drop(ours);
        theirs.set_nonblocking(false).unwrap();
        assert_eq!((&theirs).read(&mut [0]).unwrap(), 0);
        assert!(closer.ending.pop().unwrap().wait().unwrap().success());
    }
}
