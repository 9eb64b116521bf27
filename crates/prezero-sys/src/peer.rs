//! The process at the other end of a Unix socket, and descriptors that a service manager left open.

use std::ffi::c_int;
use std::mem::size_of;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

use rustix::io::Errno;

use crate::errno::last_error;

/// Since Linux 4.13; in no crate yet.
const SO_PEERGROUPS: c_int = 59;
/// Since Linux 6.5.
const SO_PEERPIDFD: c_int = 77;
/// Since Linux 6.16.
const SO_PASSRIGHTS: c_int = 83;

/// The process at the other end of a connected Unix socket, and its user.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Credentials {
    /// Process; 0: one that this process cannot name, of a PID namespace above its own.
    pub pid: i32,
    /// Effective user.
    pub uid: u32,
    /// Effective group.
    pub gid: u32,
}

/// The credentials of the process at the other end, when it connected. Not rustix's: its
/// process number cannot be 0.
///
/// # Errors
/// What `getsockopt` answers for something that is no connected Unix socket.
pub fn peer_credentials(socket: BorrowedFd<'_>) -> Result<Credentials, Errno> {
    let mut peer = libc::ucred { pid: 0, uid: u32::MAX, gid: u32::MAX };
    let mut len = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: the kernel writes one ucred into room for one.
    let done = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            (&raw mut peer).cast(),
            &raw mut len,
        )
    };
    if done != 0 {
        return Err(last_error());
    }
    Ok(Credentials { pid: peer.pid, uid: peer.uid, gid: peer.gid })
}

/// The supplementary groups of the process at the other end, when it connected.
///
/// # Errors
/// `NOPROTOOPT` before Linux 4.13, `NODATA` for what is no connected Unix socket.
pub fn peer_groups(socket: BorrowedFd<'_>) -> Result<Vec<u32>, Errno> {
    // More than most have; the kernel says how many more there are.
    let mut groups = vec![0u32; 64];
    loop {
        let room = size_of::<u32>() * groups.len();
        let mut len = room as libc::socklen_t;
        // SAFETY: the kernel writes at most `len` bytes, which is what `groups` has room for.
        let done = unsafe {
            libc::getsockopt(
                socket.as_raw_fd(),
                libc::SOL_SOCKET,
                SO_PEERGROUPS,
                groups.as_mut_ptr().cast(),
                &raw mut len,
            )
        };
        let count = len as usize / size_of::<u32>();
        if done == 0 {
            groups.truncate(count);
            return Ok(groups);
        }
        match last_error() {
            Errno::RANGE if count > groups.len() => groups.resize(count, 0),
            error => return Err(error),
        }
    }
}

/// The process at the other end of a connected Unix socket, as it was when it connected.
///
/// # Errors
/// `NOPROTOOPT` before Linux 6.5, `SRCH` or `INVAL` where the process is gone.
pub fn peer_pidfd(socket: BorrowedFd<'_>) -> Result<OwnedFd, Errno> {
    let mut fd: RawFd = -1;
    let mut len = size_of::<RawFd>() as libc::socklen_t;
    // SAFETY: the kernel writes one descriptor number into room for one.
    let done = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            SO_PEERPIDFD,
            (&raw mut fd).cast(),
            &raw mut len,
        )
    };
    if done != 0 {
        return Err(last_error());
    }
    // SAFETY: the kernel has just made this descriptor for this call.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Refuses descriptors that come over this Unix socket: a process that sends one is told `EPERM`. Of a socket
/// that listens all that connect from then on inherit it.
///
/// # Errors
/// `NOPROTOOPT` before Linux 6.16.
pub fn refuse_rights(socket: BorrowedFd<'_>) -> Result<(), Errno> {
    set_flag(socket, SO_PASSRIGHTS, 0)
}

/// Gives each packet of this Unix socket a time, which a receiver without room for it is told of as `MSG_CTRUNC`:
/// so an empty packet is no end.
///
/// # Errors
/// What `setsockopt` answers for something that is no socket.
pub fn stamp_packets(socket: BorrowedFd<'_>) -> Result<(), Errno> {
    set_flag(socket, libc::SO_TIMESTAMP, 1)
}

fn set_flag(socket: BorrowedFd<'_>, option: c_int, flag: c_int) -> Result<(), Errno> {
    // SAFETY: the kernel reads one int.
    let done = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            option,
            (&raw const flag).cast(),
            size_of::<c_int>() as libc::socklen_t,
        )
    };
    if done == 0 { Ok(()) } else { Err(last_error()) }
}

/// Bytes that were sent over this socket and not yet received at its other end, with what they
/// cost the kernel: 0 only when all was received, or the other end is gone.
///
/// # Errors
/// What `ioctl` answers for something that is no socket.
pub fn unread_bytes(socket: BorrowedFd<'_>) -> Result<usize, Errno> {
    let mut bytes: c_int = 0;
    // SAFETY: the kernel writes one int.
    let done = unsafe { libc::ioctl(socket.as_raw_fd(), libc::TIOCOUTQ, &raw mut bytes) };
    if done == 0 { Ok(usize::try_from(bytes).unwrap_or(0)) } else { Err(last_error()) }
}

/// Takes over the descriptors that a service manager left open from number 3 on, and marks
/// them so that no child inherits them.
///
/// # Safety
/// No other code in the process uses those numbers, now or later.
pub unsafe fn inherited(count: usize) -> Vec<OwnedFd> {
    let first: RawFd = 3;
    let numbers = (first..).take(count);
    numbers
        .filter_map(|number| {
            // SAFETY: sets a flag of a descriptor, or fails where there is none.
            let there = unsafe { libc::fcntl(number, libc::F_SETFD, libc::FD_CLOEXEC) } == 0;
            // SAFETY: it is open, and the caller vouches that no other code uses it.
            there.then(|| unsafe { OwnedFd::from_raw_fd(number) })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use prezero_testing::alone;
    use std::os::fd::AsFd;

    fn no_socket() -> std::fs::File {
        std::fs::File::open("/dev/null").unwrap()
    }

    #[test]
    fn a_peer_has_this_process_credentials() {
        let (ours, _theirs) = std::os::unix::net::UnixStream::pair().unwrap();
        let peer = peer_credentials(ours.as_fd()).unwrap();
        let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
        assert_eq!(peer, Credentials { pid: std::process::id() as i32, uid, gid });
        assert!(peer_credentials(no_socket().as_fd()).is_err());
    }

    #[test]
    fn a_peer_has_this_process_groups() {
        let (ours, _theirs) = std::os::unix::net::UnixStream::pair().unwrap();
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("Groups:")).unwrap();
        let groups: Vec<u32> = line.split_whitespace().map(|gid| gid.parse().unwrap()).collect();
        assert_eq!(peer_groups(ours.as_fd()), Ok(groups));
        assert!(peer_groups(no_socket().as_fd()).is_err());
    }

    #[test]
    fn a_socket_that_refuses_rights_says_so_to_who_sends_them() {
        use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
        let (ours, theirs) = std::os::unix::net::UnixStream::pair().unwrap();
        let passed = || {
            let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
            let mut control = SendAncillaryBuffer::new(&mut space);
            let files = [theirs.as_fd()];
            assert!(control.push(SendAncillaryMessage::ScmRights(&files)));
            let slices = [std::io::IoSlice::new(b"x")];
            sendmsg(&theirs, &slices, &mut control, SendFlags::NOSIGNAL)
        };
        assert_eq!(passed(), Ok(1));
        match refuse_rights(ours.as_fd()) {
            Ok(()) => assert_eq!(passed(), Err(Errno::PERM)),
            Err(error) => assert_eq!((error, passed()), (Errno::NOPROTOOPT, Ok(1))),
        }
        assert!(refuse_rights(no_socket().as_fd()).is_err());
    }

    #[test]
    fn a_packet_without_bytes_is_told_from_the_end() {
        let _alone = alone();
        use rustix::net::{
            AddressFamily, RecvAncillaryBuffer, RecvFlags, ReturnFlags, SendFlags, SocketFlags,
            SocketType, recvmsg, send, socketpair,
        };
        let (kind, flags) = (SocketType::SEQPACKET, SocketFlags::CLOEXEC);
        let (ours, theirs) = socketpair(AddressFamily::UNIX, kind, flags, None).unwrap();
        send(&theirs, &[], SendFlags::NOSIGNAL).unwrap();
        drop(theirs);
        stamp_packets(ours.as_fd()).unwrap();
        let read = || {
            let mut control = RecvAncillaryBuffer::default();
            let read = recvmsg(&ours, &mut [], &mut control, RecvFlags::DONTWAIT).unwrap();
            (read.bytes, read.flags.contains(ReturnFlags::CTRUNC))
        };
        assert_eq!((read(), read()), ((0, true), (0, false)));
        assert!(stamp_packets(no_socket().as_fd()).is_err());
    }

    #[test]
    fn a_peer_is_a_process_or_unknown_to_an_old_kernel() {
        let (ours, _theirs) = std::os::unix::net::UnixStream::pair().unwrap();
        match peer_pidfd(ours.as_fd()) {
            Ok(_) | Err(Errno::NOPROTOOPT) => {}
            Err(other) => panic!("{other:?}"),
        }
    }
}
