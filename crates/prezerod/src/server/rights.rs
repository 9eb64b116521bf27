//! Descriptors that clients send with their requests, and that the broker has no use for.
//!
//! Closing one may take as long as its owner likes: a TCP socket that lingers, a file of a file
//! system that hangs. So the loop closes none. Since Linux 6.16 a socket refuses them
//! (`SO_PASSRIGHTS`), and what connects to one that refuses inherits that. Elsewhere, and from clients
//! that connected before, they are received, and handed to a process that ends with them: the
//! kernel does not let a socket linger that a process leaves behind as it ends.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recvmsg, sendmsg, socketpair,
};

/// Descriptors of one packet: `SCM_MAX_FD` of the kernel.
const MOST: usize = 253;
/// A process is started once in this time, ns.
const EACH_NS: u64 = 100_000_000;
/// Processes that may be ending at a time: one may hang.
const ENDING: usize = 8;

/// Receives a packet: its length, and the descriptors that came with it.
pub fn receive(
    socket: BorrowedFd<'_>,
    packet: &mut [u8],
    flags: RecvFlags,
) -> Result<(usize, Vec<OwnedFd>), Errno> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let slices = &mut [IoSliceMut::new(packet)];
    let received = recvmsg(socket, slices, &mut control, flags | RecvFlags::CMSG_CLOEXEC)?;
    let rights = control.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(files) => Some(files),
        _ => None,
    });
    Ok((received.bytes, rights.flatten().collect()))
}

/// Closes what clients sent, in another process.
#[derive(Debug)]
pub struct FdCloser {
    program: PathBuf,
    waiting: Vec<OwnedFd>,
    ending: Vec<Child>,
    worked: u64,
}

impl FdCloser {
    /// Its processes will run `program`.
    pub fn new(program: PathBuf) -> FdCloser {
        FdCloser { program, waiting: vec![], ending: vec![], worked: 0 }
    }

    /// To be closed some time.
    pub fn take(&mut self, rights: Vec<OwnedFd>) {
        self.waiting.extend(rights);
    }

    /// Hands over what has come together, now and then.
    pub fn work(&mut self, now: u64) {
        if now.saturating_sub(self.worked) < EACH_NS {
            return;
        }
        self.worked = now;
        self.ending.retain_mut(|process| matches!(process.try_wait(), Ok(None)));
        if self.waiting.is_empty() || self.ending.len() >= ENDING {
            return;
        }
        match self.spawn() {
            Ok(process) => self.ending.push(process),
            Err(error) => prezero_sys::log!("prezerod: descriptors of clients stay open: {error}"),
        }
    }

    fn spawn(&mut self) -> io::Result<Child> {
        let (kind, flags) = (SocketType::SEQPACKET, SocketFlags::CLOEXEC);
        let (ours, theirs) = socketpair(AddressFamily::UNIX, kind, flags, None)?;
        let mut command = Command::new(&self.program);
        let process = command.arg("close-fds").stdin(Stdio::from(theirs)).spawn()?;
        drop(command);
        while !self.waiting.is_empty() {
            let batch = self.waiting.len().saturating_sub(MOST);
            let files: Vec<_> = self.waiting[batch..].iter().map(AsFd::as_fd).collect();
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST))];
            let mut control = SendAncillaryBuffer::new(&mut space);
            let fits = control.push(SendAncillaryMessage::ScmRights(&files));
            let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
            match sendmsg(&ours, &[IoSlice::new(b"x")], &mut control, flags) {
                Ok(_) if fits => self.waiting.truncate(batch),
                // The rest goes with the next one.
                Err(Errno::AGAIN) => break,
                // Sockets with sockets within, too deep to be sent on.
                _ => {
                    let rest = self.waiting.split_off(batch);
                    std::thread::spawn(move || drop(rest));
                }
            }
        }
        Ok(process)
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
        let (len, rights) = receive(input.as_fd(), &mut [0], RecvFlags::empty())?;
        // The kernel closes them, as the process ends.
        std::mem::forget(rights);
        if len == 0 {
            return Ok(());
        }
    }
}
