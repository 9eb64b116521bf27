//! Connections that end: what their clients still read, and where their sockets are closed.
//!
//! Contract: an answer that a connection ends with can be read, and a socket in which descriptors lie is closed by a
//! process (`rights`), however the connection ends.

use std::os::fd::{AsFd, OwnedFd};

use prezero_sys::thread;
use rustix::net::{Shutdown, shutdown};

use super::clients::{Heard, is_over};
use super::rights::{Packet, is_empty, is_heard, receive};
use super::{Connection, Server};
use crate::tenant::ClientId;

impl Server {
    /// Those that have gone end, the oldest first, in this round's time.
    pub(super) fn reap_clients(&mut self, gone: Vec<ClientId>) {
        let began = thread::monotonic_ns();
        for id in gone {
            self.reap_client(id);
            if is_over(began) {
                break;
            }
        }
    }

    /// Ends a connection whose client is gone, and reads no answer.
    pub(super) fn reap_client(&mut self, id: ClientId) {
        match self.clients.listener.refuses_rights() {
            true => self.end(id, |_| Closes::Here),
            false => self.end(id, close_after_answer),
        }
    }

    /// Ends a connection whose client reads why.
    pub(super) fn drop_client(&mut self, id: ClientId) -> Heard {
        self.end(id, close_after_answer);
        Heard::Nothing
    }

    fn end(&mut self, id: ClientId, close: fn(&OwnedFd) -> Closes) {
        let Some(connection) = self.clients.all.get_mut(&id) else { return };
        if connection.parted_ns.is_some() {
            return;
        }
        let now = thread::monotonic_ns();
        let closes = close(&connection.socket);
        // Without a pidfd the end of the process does not show.
        if !self.watch.holders.contains_key(&connection.pid) {
            self.broker.exited(now, connection.pid);
        }
        if closes == Closes::Elsewhere {
            connection.parted_ns = Some(now);
            return self.broker.withdraw(id);
        }
        self.broker.disconnect(id);
        if let Some(Connection { party, socket, unread, .. }) = self.clients.all.remove(&id) {
            self.clients.left.add(party, socket, unread);
        }
    }

    /// Closes a socket that no client has a place for.
    pub(super) fn close_unanswered(&mut self, socket: OwnedFd) {
        if close_after_answer(&socket) == Closes::Elsewhere {
            self.clients.closer.take(thread::monotonic_ns(), socket);
        }
    }

    /// Connections that ended with descriptors unread, and whose clients have read why, go to a process that closes them.
    /// Each has its place until then: where no process can take them, their users have used up theirs.
    pub(super) fn close_parted(&mut self, now: u64) {
        if !self.clients.closer.is_ready(now) {
            return;
        }
        let is_over = |(id, connection): (&ClientId, &mut Connection)| {
            let Connection { socket, unread, parted_ns, .. } = connection;
            let is_heard = is_heard(&*socket, now, (*parted_ns)?);
            (is_heard && unread.look(socket) == 0).then_some(*id)
        };
        let over: Vec<ClientId> = self.clients.all.iter_mut().filter_map(is_over).collect();
        over.iter().for_each(|id| self.broker.disconnect(*id));
        let over = over.iter().filter_map(|id| self.clients.all.remove(id));
        self.clients.closer.work(now, over.map(|connection| connection.socket).collect());
    }
}

/// Where a socket may be closed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Closes {
    Here,
    /// By a process: there are descriptors in it.
    Elsewhere,
}

/// Ends a connection such that its last answer can be read: what a client has sent and was not
/// read would make the kernel tell it of a reset instead.
fn close_after_answer(socket: &OwnedFd) -> Closes {
    let _ = shutdown(socket, Shutdown::Both);
    while let Ok(Packet::Frame(1..)) = receive(socket.as_fd(), &mut [0u8; 1]) {}
    if is_empty(socket.as_fd()) { Closes::Here } else { Closes::Elsewhere }
}
