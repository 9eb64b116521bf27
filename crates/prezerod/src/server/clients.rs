//! Connections: which come, what they say, what they are sent.
//!
//! A user has a number of turns and a time in each round of the loop, whatever its connections;
//! nothing is read of a stranger; and what has to be closed in a client's name is closed elsewhere
//! (`rights`).

use std::collections::{BTreeMap, VecDeque};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::Once;

use prezero_sys::{peer, thread};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{SendFlags, SocketFlags, accept_with};
use rustix::process::{Pid, PidfdFlags, Resource, getrlimit, pidfd_open};

use super::rights::{Packet, receive};
use super::store::Kept;
use super::unread::{self, Unread};
use super::{ACCEPT_BATCH, Connection, Server};
use crate::broker::Out;
use crate::demand::Party;
use crate::filler::send_packet;
use crate::inode::mounted;
use crate::inode::named::{self, LeaseDir};
use crate::protocol::{Answer, Drain, MAX_REQUEST, Reason, Request};
use crate::tenant::{ClientId, Peer};

/// Turns of a user in one round: frames of all its connections together.
/// Moved by: `tests/system/attack.py`.
const TURNS: usize = 4;
/// Time of a round, ns: for each user's turns, for connections that come, and for those that go. Another
/// user waits for no more than one of each.
/// Moved by: `tests/system/attack.py`.
const TURN_NS: u64 = 1_000_000;
/// Part of the limit of open files that no connection takes, as a divisor, and at most: for
/// leases, fillers, and descriptors that clients send.
const SPARE: u64 = 4;
const SPARE_MOST: u64 = 512;
/// The time for which no connection is accepted without descriptors, ns.
const BACK_OFF_NS: u64 = 100_000_000;

impl Server {
    /// Those that came, in this round's time.
    pub(super) fn accept(&mut self) -> Vec<ClientId> {
        let (mut came, began) = (vec![], thread::monotonic_ns());
        for _ in 0..ACCEPT_BATCH {
            if is_over(began) {
                break;
            }
            if self.clients.closer.is_full() {
                self.close_parted(began);
                if self.clients.closer.is_full() {
                    self.back_off();
                    break;
                }
            }
            let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
            let socket = match accept_with(&self.clients.listener, flags) {
                Ok(socket) => socket,
                Err(Errno::AGAIN) => break,
                // Out of descriptors: a client that connects now is accepted later.
                Err(_) => {
                    self.back_off();
                    break;
                }
            };
            // The kernel gives the lowest number that is free.
            if socket.as_raw_fd() as u64 >= most_descriptors() {
                let answer = self.broker.no_descriptor();
                self.turn_away(socket, &answer);
                self.back_off();
                break;
            }
            match self.admit(&socket) {
                Ok((id, peer, process)) => {
                    let (heard_ns, unread) = (thread::monotonic_ns(), Unread::default());
                    // Subordinate users share the turns of their owner.
                    let (pid, party) = (peer.pid, self.broker.ledger().party_of(&peer));
                    let parted_ns = None;
                    let connection =
                        Connection { socket, pid, party, process, heard_ns, unread, parted_ns };
                    self.clients.all.insert(id, connection);
                    came.push(id);
                }
                Err(Some(answer)) => self.turn_away(socket, &answer),
                Err(None) => self.close_unanswered(socket),
            }
        }
        came
    }

    /// What the kernel says of a client, if it may stay; nothing is read of a stranger, or of one of too many.
    fn admit(
        &mut self,
        socket: &OwnedFd,
    ) -> Result<(ClientId, Peer, Option<OwnedFd>), Option<Answer>> {
        let credentials = peer::peer_credentials(socket.as_fd()).map_err(|_| None)?;
        let peer::Credentials { pid, uid, gid } = credentials;
        self.broker.may_connect(uid)?;
        let process = peer::peer_pidfd(socket.as_fd()).or_else(|_| {
            let pid = Pid::from_raw(pid).ok_or(Errno::SRCH)?;
            pidfd_open(pid, PidfdFlags::empty())
        });
        let process = process.ok();
        // Read first, looked after whether it was still that process: a number is used again.
        let (mut cgroups, mut contained) = self.broker.whereabouts(pid, process.as_ref());
        if !process.as_ref().is_some_and(lives) {
            (cgroups, contained) = (vec![], true);
        }
        // A kernel that does not tell knows of no further groups.
        let groups = || peer::peer_groups(socket.as_fd()).unwrap_or_default();
        let groups = self.broker.named_groups(groups);
        let began = if cgroups.is_empty() { 0 } else { began(pid) };
        let peer = Peer { pid, uid, gid, groups, cgroups, began, contained };
        let id = self.broker.connect(peer.clone())?;
        Ok((id, peer, process))
    }

    fn turn_away(&mut self, socket: OwnedFd, answer: &Answer) {
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        let _ = send_packet(socket.as_fd(), &answer.encode(0), None, flags);
        self.close_unanswered(socket);
    }

    fn back_off(&mut self) {
        self.clients.accept_backoff_until = thread::monotonic_ns() + BACK_OFF_NS;
    }

    /// Reads the connections that have something to read: each user's connections in turn, another one first in each
    /// round, and a number of frames of each user.
    pub(super) fn hear_clients(&mut self, said: Vec<ClientId>) {
        let mut users: BTreeMap<Party, VecDeque<ClientId>> = BTreeMap::new();
        for id in said {
            if let Some(connection) = self.clients.all.get(&id) {
                users.entry(connection.party).or_default().push_back(id);
            }
        }
        self.clients.round += 1;
        for mut queue in users.into_values() {
            let first = self.clients.round * TURNS % queue.len();
            queue.rotate_left(first);
            let (mut frames, mut heard, began) = (0, 0, thread::monotonic_ns());
            // One that has gone takes no turn: its place is another's.
            while frames < TURNS
                && (heard == 0 || !is_over(began))
                && let Some(id) = queue.pop_front()
            {
                heard += 1;
                if self.hear_client(id) == Heard::Frame {
                    frames += 1;
                    queue.push_back(id);
                }
            }
        }
    }

    fn hear_client(&mut self, id: ClientId) -> Heard {
        let connection = self.clients.all.get_mut(&id).filter(|one| one.parted_ns.is_none());
        let Some(connection) = connection else { return Heard::Nothing };
        // One byte more than the longest frame, to see that a packet is longer.
        let mut packet = [0u8; MAX_REQUEST + 1];
        let socket = connection.socket.as_fd();
        let received = match receive(socket, &mut packet) {
            Err(Errno::AGAIN | Errno::INTR) => return Heard::Nothing,
            Ok(Packet::Frame(0)) => {
                self.reap_client(id);
                return Heard::Nothing;
            }
            Err(_) => return self.drop_client(id),
            Ok(received) => received,
        };
        let now = thread::monotonic_ns();
        connection.heard_ns = now;
        let request = match received {
            Packet::Rights => Err("no descriptor is taken here; send none".into()),
            Packet::Frame(len) => Request::decode(&packet[..len]).map_err(|bad| bad.to_string()),
        };
        match request {
            Ok((tag, request)) => self.request(now, id, tag, request),
            Err(text) => {
                let answer = self.broker.malformed(text);
                self.deliver(Out::new(id, 0, answer));
                return self.drop_client(id);
            }
        }
        Heard::Frame
    }

    fn request(&mut self, now: u64, id: ClientId, tag: u32, request: Request) {
        let sends_one = matches!(request, Request::Lease { .. } | Request::LeaseOrPlain { .. });
        if sends_one && self.is_full(id) {
            let text = "leases of this connection or user lie unread; receive them".into();
            let answer = self.broker.refuse(id, request.want(), (Reason::Busy, text));
            return self.deliver(Out::new(id, tag, answer));
        }
        if matches!(request, Request::Report { from: 0, .. }) {
            self.reap_leases(now);
        }
        if let Request::LeaseNamed { name, .. } = &request
            && let Some(found) = named::find(&self.broker.files_of(id), name)
        {
            return self.found(id, tag, &found, name);
        }
        if let Request::LeaseNamed { want, .. } = &request {
            // What was given back a moment ago is room.
            let files = self.broker.files_of(id);
            if LeaseDir::for_page(&files, want.page).is_ok_and(|place| place.free < want.bytes) {
                files.iter().for_each(|dir| mounted::reap(dir));
            }
        }
        // What it gave back a moment ago may not be known to be gone.
        if let Some(tenant) = self.broker.exceeded(id, &request) {
            for lease in self.watch.tracker.over_of(now, &tenant) {
                self.broker.ended(now, lease);
            }
            self.broker.reconcile(now);
        }
        if let Request::Drain(drain) = request
            && self.broker.is_operator(id)
            && let Err(error) = self.survival.state.mark_drained(drain == Drain::On)
        {
            let out = self.not_durable(id, tag, error);
            return self.deliver(out);
        }
        let mut answered = self.broker.request(now, id, tag, request);
        if let (Request::Expect { want, .. }, Some(Answer::Done)) =
            (request, answered.as_ref().map(|out| &out.answer))
            && let Err(error) = self.save_now()
        {
            let none = Request::Expect { want, seconds: 0, pieces: 0 };
            self.broker.request(now, id, tag, none);
            answered = Some(self.not_durable(id, tag, error));
        }
        match answered {
            Some(out) => self.deliver(out),
            None => self.needs_tick = true,
        }
    }

    /// What an operator is told of what would not survive the broker.
    fn not_durable(&mut self, client: ClientId, tag: u32, error: String) -> Out<Kept> {
        let text = format!("{error}; it would not survive prezerod, and is not done");
        let answer = self.broker.no((Reason::Kernel, text));
        Out::new(client, tag, answer)
    }

    /// Whether the connection or its user has its share of unread leases.
    fn is_full(&mut self, id: ClientId) -> bool {
        let Some(connection) = self.clients.all.get_mut(&id) else { return false };
        let party = connection.party;
        if connection.unread.is_full(&connection.socket) {
            return true;
        }
        let open = self.clients.all.values_mut().filter(|connection| connection.party == party);
        let open = open.map(|connection| (&connection.socket, &mut connection.unread));
        unread::is_full(party, &mut self.clients.left, open)
    }

    /// Sends an answer. The inode that goes with it is closed here whatever happens: it is
    /// the client's, or stays without an owner.
    pub(super) fn deliver(&mut self, out: Out<Kept>) {
        let Out { client, tag, answer, inode, name } = out;
        let file = inode.map(Kept::into_file);
        if let (Answer::Lease(granted), Some(inode), Some(name)) = (&answer, &file, &name) {
            return self.name_lease(client, tag, granted, inode, name);
        }
        let lease = match (&answer, &file) {
            (Answer::Lease(granted), Some(inode)) => Some((granted.lease, inode)),
            _ => None,
        };
        let Some((number, inode)) = lease else {
            if !self.send(client, tag, &answer, None) {
                self.drop_client(client);
            }
            return;
        };
        // Marked before it is sent: it may be gone at once.
        let tenant = self.broker.tenant_of_lease(number).unwrap_or_default();
        let marked = self.watch.tracker.watch(tenant, number, inode.as_fd());
        if !self.send(client, tag, &answer, Some(inode)) {
            self.broker.undelivered(number);
            self.drop_client(client);
            if let Some(file) = file {
                self.service.store.discard(file);
            }
            return;
        }
        if let Some(connection) = self.clients.all.get_mut(&client) {
            connection.unread.sent();
        }
        match marked {
            Ok(inode) => self.broker.ends_with_memory(number, inode.device()),
            Err(_) => {
                static SAID: Once = Once::new();
                SAID.call_once(|| {
                    prezero_sys::log!(
                        "prezerod: the kernel watches no more leases: they end with the processes that got \
                         them, whoever has the memory; raise fs.fanotify.max_user_marks and \
                         fs.fanotify.max_user_groups (Linux 5.19)"
                    );
                });
                self.watch_holder(client);
            }
        }
    }

    fn send(&self, client: ClientId, tag: u32, answer: &Answer, file: Option<&OwnedFd>) -> bool {
        self.clients.all.get(&client).is_some_and(|connection| {
            let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
            let file = file.map(AsFd::as_fd);
            send_packet(connection.socket.as_fd(), &answer.encode(tag), file, flags).is_ok()
        })
    }

    /// Its process is watched from now on: its leases end with it.
    fn watch_holder(&mut self, client: ClientId) {
        let Some(connection) = self.clients.all.get(&client) else { return };
        if let Some(process) = &connection.process
            && let Ok(process) = process.try_clone()
        {
            self.watch.holders.entry(connection.pid).or_insert(process);
        }
    }
}

/// Whether a turn that began then has had its time.
pub(super) fn is_over(began: u64) -> bool {
    thread::monotonic_ns().saturating_sub(began) >= TURN_NS
}

/// What came of listening to a client.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Heard {
    /// A frame, and maybe there are more.
    Frame,
    /// No frame, or the end.
    Nothing,
}

/// Descriptors from this number on are for other things than connections.
fn most_descriptors() -> u64 {
    let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    limit - (limit / SPARE).min(SPARE_MOST)
}

/// Whether a process has not ended.
fn lives(process: &OwnedFd) -> bool {
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut [PollFd::new(process, PollFlags::IN)], Some(&now)) == Ok(0)
}

/// When a process began, in ticks since the boot; 0: not known.
pub(super) fn began(pid: i32) -> u64 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // The 22nd field. The second is a name in brackets, which may hold anything.
    let behind = stat.rsplit_once(") ").map_or("", |(_, behind)| behind);
    behind.split(' ').nth(19).and_then(|ticks| ticks.parse().ok()).unwrap_or(0)
}
