//! Connections: who comes, what they say, what they are sent.

use std::os::fd::{AsFd, OwnedFd};

use prezero_sys::{peer, shared, thread};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{MemfdFlags, SealFlags, SeekFrom, fcntl_add_seals, seek};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, Shutdown, SocketFlags, accept_with, recv, shutdown};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use super::{AT_ONCE, Connection, Server};
use crate::broker::{ClientId, Out};
use crate::filler::send_packet;
use crate::protocol::{Answer, MAX_REQUEST, Reason, Request};
use crate::tenant::Peer;

impl Server {
    pub(super) fn accept(&mut self) {
        for _ in 0..AT_ONCE {
            let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
            let socket = match accept_with(&self.listener, flags) {
                Ok(socket) => socket,
                Err(Errno::AGAIN) => return,
                // Out of descriptors: whoever knocks is heard at the next look.
                Err(_) => {
                    self.deaf = true;
                    return;
                }
            };
            let Ok(credentials) = peer::peer_credentials(socket.as_fd()) else { continue };
            let peer::Credentials { pid, uid, gid } = credentials;
            let process = peer::peer_pidfd(socket.as_fd()).or_else(|_| {
                let pid = Pid::from_raw(pid).ok_or(Errno::SRCH)?;
                pidfd_open(pid, PidfdFlags::empty())
            });
            let process = process.ok();
            // Read first, looked after whether it was still that process: a number is used again.
            let cgroup = self.broker.cgroup(pid).filter(|_| process.as_ref().is_some_and(lives));
            // A kernel that does not tell knows of no further groups.
            let groups = peer::peer_groups(socket.as_fd()).unwrap_or_default();
            let peer = Peer { pid, uid, gid, groups, cgroup };
            match self.broker.connect(peer) {
                Ok(id) => {
                    let heard_ns = thread::monotonic_ns();
                    self.connections
                        .insert(id, Connection { socket, peer: pid, process, heard_ns });
                }
                Err(answer) => {
                    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
                    let _ = send_packet(socket.as_fd(), &answer.encode(0), None, flags);
                    farewell(socket);
                }
            }
        }
    }

    pub(super) fn hear_client(&mut self, id: ClientId) {
        for _ in 0..AT_ONCE {
            let Some(connection) = self.connections.get_mut(&id) else { return };
            // One byte more than the longest frame, to see that a packet is longer. Descriptors
            // that a client sends are closed by the kernel: nobody asks for them.
            let mut packet = [0u8; MAX_REQUEST + 1];
            let len = match recv(&connection.socket, &mut packet, RecvFlags::DONTWAIT) {
                Err(Errno::AGAIN | Errno::INTR) => return,
                Ok((0, _)) | Err(_) => return self.drop_client(id),
                Ok((len, _)) => len,
            };
            let now = thread::monotonic_ns();
            connection.heard_ns = now;
            match Request::decode(&packet[..len]) {
                Ok((tag, request)) => match self.broker.request(now, id, tag, request) {
                    Some(out) => self.deliver(out),
                    None => self.unplanned = true,
                },
                Err(malformed) => {
                    self.broker.counters.malformed += 1;
                    let answer = self.broker.no(Reason::Malformed, malformed.to_string());
                    self.deliver(Out { client: id, tag: 0, answer, inode: None, text: None });
                    return self.drop_client(id);
                }
            }
        }
    }

    /// Sends an answer. The inode that goes with it is closed here whatever happens: it is
    /// the client's, or nobody's.
    pub(super) fn deliver(&mut self, out: Out<OwnedFd>) {
        let Out { client, tag, answer, inode, text } = out;
        let file = inode.or_else(|| text.as_deref().and_then(file_of));
        let lease = match &answer {
            Answer::Lease(granted) => Some(granted.lease),
            _ => None,
        };
        let sent = self.connections.get(&client).is_some_and(|connection| {
            let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
            let file = file.as_ref().map(AsFd::as_fd);
            send_packet(connection.socket.as_fd(), &answer.encode(tag), file, flags).is_ok()
        });
        match (sent, lease) {
            (true, Some(_)) => self.watch_holder(client),
            (true, None) => {}
            (false, Some(lease)) => {
                self.broker.undelivered(lease);
                self.drop_client(client);
            }
            (false, None) => self.drop_client(client),
        }
    }

    /// Its process is watched from now on: its leases end with it.
    fn watch_holder(&mut self, client: ClientId) {
        let Some(connection) = self.connections.get(&client) else { return };
        if let Some(process) = &connection.process
            && let Ok(process) = process.try_clone()
        {
            self.holders.entry(connection.peer).or_insert(process);
        }
    }

    pub(super) fn drop_client(&mut self, id: ClientId) {
        if let Some(connection) = self.connections.remove(&id) {
            self.broker.disconnect(id);
            farewell(connection.socket);
            // Without a pidfd nobody will tell when the process ends.
            if !self.holders.contains_key(&connection.peer) {
                self.broker.exited(connection.peer);
            }
        }
    }
}

/// Whether a process has not ended.
fn lives(process: &OwnedFd) -> bool {
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut [PollFd::new(process, PollFlags::IN)], Some(&now)) == Ok(0)
}

/// Ends a connection such that its last answer can be read: what a client has sent and nobody
/// read would make the kernel tell it of a reset instead.
fn farewell(socket: OwnedFd) {
    let _ = shutdown(&socket, Shutdown::Both);
    while recv(&socket, &mut [0u8; 1], RecvFlags::DONTWAIT).is_ok_and(|(len, _)| len > 0) {}
}

/// A file with this text that nobody can change.
fn file_of(text: &str) -> Option<OwnedFd> {
    let file = shared::memfd("prezero-report", MemfdFlags::empty()).ok()?;
    let mut rest = text.as_bytes();
    while !rest.is_empty() {
        match rustix::io::write(&file, rest) {
            Ok(0) => return None,
            Ok(n) => rest = &rest[n..],
            Err(Errno::INTR) => {}
            Err(_) => return None,
        }
    }
    let all = SealFlags::WRITE | SealFlags::GROW | SealFlags::SHRINK | SealFlags::SEAL;
    fcntl_add_seals(&file, all).ok()?;
    // Who gets it reads from the beginning.
    seek(&file, SeekFrom::Start(0)).ok()?;
    Some(file)
}
