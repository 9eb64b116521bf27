//! Leases that were sent and not read yet.
//!
//! The kernel counts a descriptor that was not received against its sender, and refuses any more
//! to it beyond its limit of open files: then no client gets a lease. So each connection and each
//! user may leave only a number of them unread, also of connections that ended.

use std::os::fd::{AsFd, OwnedFd};

use prezero_sys::peer;

use crate::demand::Party;

/// Leases that a connection may leave unread.
const OF_CONNECTION: u32 = 16;
/// And all connections of a user together.
const OF_USER: u32 = 128;

/// What one connection was sent.
#[derive(Clone, Copy, Debug, Default)]
pub struct Unread {
    count: u32,
}

impl Unread {
    /// One more lease.
    pub fn sent(&mut self) {
        self.count += 1;
    }

    /// How many it may have left unread: once it has read all, none.
    pub fn look(&mut self, socket: impl AsFd) -> u32 {
        if self.count > 0 && peer::unread_bytes(socket.as_fd()) == Ok(0) {
            self.count = 0;
        }
        self.count
    }

    /// Whether this connection has its share.
    pub fn is_full(&mut self, socket: impl AsFd) -> bool {
        self.count >= OF_CONNECTION && self.look(socket) >= OF_CONNECTION
    }
}

/// Connections that ended with leases unread: the client may keep them so.
#[derive(Debug, Default)]
pub struct Left {
    all: Vec<(Party, OwnedFd, Unread)>,
}

impl Left {
    /// This party's connection ended.
    pub fn add(&mut self, party: Party, socket: OwnedFd, mut unread: Unread) {
        if unread.look(&socket) > 0 {
            self.all.push((party, socket, unread));
        }
    }

    /// Forgets those that were read, or whose client is gone.
    pub fn look(&mut self) {
        self.all.retain_mut(|(_, socket, unread)| unread.look(socket) > 0);
    }

    fn of(&self, party: Party) -> u32 {
        self.all.iter().filter(|(other, ..)| *other == party).map(|(.., unread)| unread.count).sum()
    }
}

/// Whether a party has its share, with these connections and those that it left.
pub fn is_full<'a>(
    party: Party,
    left: &mut Left,
    open: impl Iterator<Item = (&'a OwnedFd, &'a mut Unread)>,
) -> bool {
    let mut open: Vec<_> = open.collect();
    let count = |open: &[(&OwnedFd, &mut Unread)]| -> u32 {
        open.iter().map(|(_, unread)| unread.count).sum()
    };
    if count(&open) + left.of(party) < OF_USER {
        return false;
    }
    for (socket, unread) in &mut open {
        unread.look(*socket);
    }
    left.look();
    count(&open) + left.of(party) >= OF_USER
}

#[cfg(test)]
mod tests {
    use super::*;
    use prezero_testing::alone;
    use std::io::{Read, Write};
    use std::os::unix::net::UnixStream;

    fn of(uid: u32) -> Party {
        Party { tenant: 0, uid }
    }

    fn sent(times: u32) -> (UnixStream, UnixStream, Unread) {
        let (mut ours, theirs) = UnixStream::pair().unwrap();
        let mut unread = Unread::default();
        for _ in 0..times {
            ours.write_all(b"x").unwrap();
            unread.sent();
        }
        (ours, theirs, unread)
    }

    #[test]
    fn a_connection_is_full_until_it_reads() {
        let _alone = alone();
        let (ours, mut theirs, mut unread) = sent(OF_CONNECTION);
        assert!(unread.is_full(&ours));
        theirs.read_exact(&mut [0; OF_CONNECTION as usize]).unwrap();
        assert!(!unread.is_full(&ours));
    }

    #[test]
    fn what_a_user_left_unread_counts_until_it_is_read_or_gone() {
        let _alone = alone();
        let mut left = Left::default();
        let mut theirs = vec![];
        for _ in 0..OF_USER / OF_CONNECTION {
            let (ours, their, unread) = sent(OF_CONNECTION);
            left.add(of(7), ours.into(), unread);
            theirs.push(their);
        }
        assert!(is_full(of(7), &mut left, [].into_iter()));
        assert!(!is_full(of(8), &mut left, [].into_iter()), "another user");
        theirs.pop();
        assert!(!is_full(of(7), &mut left, [].into_iter()));
        let (ours, _theirs, mut unread) = sent(OF_CONNECTION);
        let ours = OwnedFd::from(ours);
        assert!(is_full(of(7), &mut left, [(&ours, &mut unread)].into_iter()));
    }
}
