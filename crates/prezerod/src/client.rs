//! The Rust client: one connection, one question at a time.
//!
//! ```no_run
//! use prezerod::client::{Client, Door};
//! use prezerod::protocol::{Page, Want};
//! use std::time::Duration;
//!
//! let mut client = Client::enter(&Door::find(None))?;
//! let want = Want { bytes: 1 << 30, page: Page::Huge, node: None };
//! let lease = client.lease(want, Duration::from_secs(5))?;
//! let memory = lease.map()?; // zero, resident, ours until it is dropped
//! # Ok::<(), prezerod::client::ClientError>(())
//! ```

use std::io::IoSliceMut;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use prezero_sys::shared::SharedMap;
use rustix::fs::{SealFlags, fcntl_get_seals, fstat};
use rustix::io::Errno;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendFlags, SocketAddrUnix,
    SocketFlags, SocketType, connect, recvmsg, send, socket_with,
};

use crate::protocol::{
    Answer, Backing, Drain, Granted, MAX_ANSWER, Malformed, Name, NamedLease, Page, Reason, Report,
    Request, Want,
};

mod door;
mod within;

pub use crate::protocol::Available;
pub use door::{Door, SOCKET};
pub use within::{PLAIN_WAIT, lease_within};

/// Why there is no lease, or no answer.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The broker cannot be reached.
    #[error("{path}: {1}; {mend}", path = .0.display(), mend = mend(*.1))]
    Unreachable(PathBuf, Errno),
    /// Another user's broker, which the caller did not name.
    #[error(
        "{path}: a broker of uid {1}, which is neither root nor you; to trust it give --socket {path}, or set \
         PREZERO_SOCKET",
        path = .0.display()
    )]
    Stranger(PathBuf, u32),
    /// The connection broke.
    #[error("the broker is gone: {0}")]
    Gone(Errno),
    /// It is there, and says nothing for too long.
    #[error("the broker does not answer; is it stopped? systemctl status prezerod")]
    Silent,
    /// No.
    #[error("no lease: {1}")]
    No(Reason, String),
    /// Not now, but probably after this time; `None`: not known yet.
    #[error("not now: {1}{when}", when = soon(*.0))]
    When(Option<Duration>, String),
    /// It answered something else than was asked.
    #[error("the broker answered out of turn; are client and broker of one version?")]
    OutOfTurn,
    /// It answered in another language.
    #[error("the answer {0}")]
    Malformed(#[from] Malformed),
    /// What came with a lease is not what was granted.
    #[error("the lease is not as granted: {0}")]
    NotAsGranted(&'static str),
    /// It could not be mapped.
    #[error("the lease cannot be mapped: {0}")]
    Map(Errno),
}

fn mend(unreachable: Errno) -> &'static str {
    match unreachable {
        Errno::ACCESS | Errno::PERM => "this user may not connect; see socket-mode in prezerod(8)",
        _ => "does prezerod run?",
    }
}

fn soon(time: Option<Duration>) -> String {
    time.map_or(String::new(), |time| format!(" (ready in about {:.1} s)", time.as_secs_f64()))
}

/// A connection.
#[derive(Debug)]
pub struct Client {
    socket: OwnedFd,
    tag: u32,
    /// No call blocks for longer; `None`: for as long as the broker takes.
    until: Option<Instant>,
}

/// A lease: the memory lives until the last descriptor and mapping of it are gone.
#[derive(Debug)]
pub struct Lease {
    /// What was said of it.
    pub granted: Granted,
    /// The memory; closed on exec unless told otherwise.
    pub file: OwnedFd,
}

impl Client {
    /// Connects to the broker at this path, whichever user runs it.
    ///
    /// # Errors
    /// [`ClientError::Unreachable`].
    pub fn connect(path: &Path) -> Result<Client, ClientError> {
        Client::enter(&Door::named(path))
    }

    /// Connects to the broker behind this door.
    ///
    /// # Errors
    /// [`ClientError::Unreachable`], and [`ClientError::Stranger`] where the door was found, not named.
    pub fn enter(door: &Door) -> Result<Client, ClientError> {
        Client::enter_until(door, None)
    }

    /// The same, after which no call blocks for longer than `time` from now.
    ///
    /// # Errors
    /// As for [`enter`](Client::enter); [`ClientError::Silent`].
    pub fn enter_within(door: &Door, time: Duration) -> Result<Client, ClientError> {
        Client::enter_until(door, Instant::now().checked_add(time))
    }

    fn enter_until(door: &Door, until: Option<Instant>) -> Result<Client, ClientError> {
        let path = door.path();
        let unreachable = |error| match error {
            // The limit of a call: too many wait to be accepted.
            Errno::AGAIN => ClientError::Silent,
            error => ClientError::Unreachable(path.to_owned(), error),
        };
        let (family, kind) = (AddressFamily::UNIX, SocketType::SEQPACKET);
        let socket = socket_with(family, kind, SocketFlags::CLOEXEC, None).map_err(unreachable)?;
        let client = Client { socket, tag: 0, until };
        let address = SocketAddrUnix::new(path).map_err(unreachable)?;
        loop {
            client.limit(Timeout::Send)?;
            match connect(&client.socket, &address) {
                // A process that is stopped and goes on hears this of a call with a limit, without a handler too.
                Err(Errno::INTR) => {}
                answer => break answer.map_err(unreachable)?,
            }
        }
        door.check(client.as_fd())?;
        Ok(client)
    }

    /// The next call of this kind blocks for no longer than this client may wait.
    fn limit(&self, call: Timeout) -> Result<(), ClientError> {
        let Some(until) = self.until else { return Ok(()) };
        let left = until.saturating_duration_since(Instant::now());
        // The kernel takes 0 for no limit.
        let left = left.max(Duration::from_millis(1));
        set_socket_timeout(&self.socket, call, Some(left)).map_err(ClientError::Gone)
    }

    /// Leases this, waiting for `wait` if it is not ready (at millisecond grain).
    ///
    /// # Errors
    /// [`ClientError::No`], [`ClientError::When`], and what may go wrong on the way.
    pub fn lease(&mut self, want: Want, wait: Duration) -> Result<Lease, ClientError> {
        let wait_ms = u32::try_from(wait.as_millis()).unwrap_or(u32::MAX);
        self.granted(&Request::Lease { want, wait_ms })
    }

    /// The same for a client that starts with memory of its own otherwise: it waits, for `wait` at most, while
    /// that is the faster way.
    ///
    /// # Errors
    /// As for [`lease`](Client::lease).
    pub fn lease_or_plain(&mut self, want: Want, wait: Duration) -> Result<Lease, ClientError> {
        let wait_ms = u32::try_from(wait.as_millis()).unwrap_or(u32::MAX);
        self.granted(&Request::LeaseOrPlain { want, wait_ms })
    }

    /// Leases this as a file under a name, or finds what lies there; returns the file's path, as the
    /// broker sees it. Removing the file gives the lease back.
    ///
    /// # Errors
    /// As for [`lease`](Client::lease).
    pub fn lease_named(
        &mut self,
        name: Name,
        want: Want,
        wait: Duration,
    ) -> Result<(NamedLease, PathBuf), ClientError> {
        let wait_ms = u32::try_from(wait.as_millis()).unwrap_or(u32::MAX);
        match self.ask(&Request::LeaseNamed { want, wait_ms, name })? {
            (Answer::Named { lease, path }, _) => Ok((lease, path.into())),
            _ => Err(ClientError::OutOfTurn),
        }
    }

    /// How much there is.
    ///
    /// # Errors
    /// [`ClientError::No`] if this client may not lease.
    pub fn available(&mut self, page: Page, node: Option<u16>) -> Result<Available, ClientError> {
        match self.ask(&Request::Available { page, node })? {
            (Answer::Available(available), _) => Ok(available),
            _ => Err(ClientError::OutOfTurn),
        }
    }

    /// Has the broker lease no more, or lease again.
    ///
    /// # Errors
    /// [`ClientError::No`] unless this is root or the broker's own user.
    pub fn drain(&mut self, drain: Drain) -> Result<(), ClientError> {
        self.done(&Request::Drain(drain))
    }

    /// Has the broker keep pieces ready until they are leased, or for a time; 0: no more.
    ///
    /// # Errors
    /// [`ClientError::No`] unless this is root or the broker's own user.
    pub fn expect(&mut self, want: Want, pieces: u32, time: Duration) -> Result<(), ClientError> {
        let seconds = u32::try_from(time.as_secs()).unwrap_or(u32::MAX);
        self.done(&Request::Expect { want, seconds, pieces })
    }

    /// A report, as text.
    ///
    /// # Errors
    /// [`ClientError::No`] if this client may not lease.
    pub fn report(&mut self, report: Report) -> Result<String, ClientError> {
        let (mut whole, mut from) = (String::new(), 0);
        loop {
            let (Answer::Part { next, text }, _) = self.ask(&Request::Report { report, from })?
            else {
                return Err(ClientError::OutOfTurn);
            };
            whole += &text;
            match next {
                0 => return Ok(whole),
                next => from = next,
            }
        }
    }

    fn done(&mut self, request: &Request) -> Result<(), ClientError> {
        match self.ask(request)? {
            (Answer::Done, _) => Ok(()),
            _ => Err(ClientError::OutOfTurn),
        }
    }

    fn granted(&mut self, request: &Request) -> Result<Lease, ClientError> {
        match self.ask(request)? {
            (Answer::Lease(granted), Some(file)) => {
                let lease = Lease { granted, file };
                lease.check()?;
                Ok(lease)
            }
            (Answer::Lease(_), None) => Err(ClientError::NotAsGranted(
                "no descriptor came with it; is the limit of open files reached?",
            )),
            _ => Err(ClientError::OutOfTurn),
        }
    }

    fn ask(&mut self, request: &Request) -> Result<(Answer, Option<OwnedFd>), ClientError> {
        self.tag = self.tag.wrapping_add(1);
        let frame = request.encode(self.tag);
        loop {
            self.limit(Timeout::Send)?;
            match send(&self.socket, &frame, SendFlags::NOSIGNAL) {
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return Err(ClientError::Silent),
                // A broker that turned us away has said why before it closed.
                Err(Errno::PIPE) | Ok(_) => break,
                Err(error) => return Err(ClientError::Gone(error)),
            }
        }
        loop {
            let (tag, answer, file) = self.receive()?;
            match answer {
                Answer::No(reason, text) => return Err(ClientError::No(reason, text)),
                // What an earlier question, given up by now, was answered.
                _ if tag != self.tag => {}
                Answer::When { estimate_ns, text, .. } => {
                    let time = (estimate_ns < u64::MAX).then(|| Duration::from_nanos(estimate_ns));
                    return Err(ClientError::When(time, text));
                }
                answer => return Ok((answer, file)),
            }
        }
    }

    fn receive(&mut self) -> Result<(u32, Answer, Option<OwnedFd>), ClientError> {
        let mut packet = [0u8; MAX_ANSWER];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let mut reset = false;
        let len = loop {
            self.limit(Timeout::Recv)?;
            let slices = &mut [IoSliceMut::new(&mut packet)];
            match recvmsg(&self.socket, slices, &mut control, RecvFlags::CMSG_CLOEXEC) {
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return Err(ClientError::Silent),
                // A broker that turned us away left our question unread. The kernel tells that
                // first, and its answer after it.
                Err(Errno::CONNRESET) if !reset => reset = true,
                Err(error) => return Err(ClientError::Gone(error)),
                Ok(received) if received.bytes == 0 => {
                    return Err(ClientError::Gone(Errno::CONNRESET));
                }
                Ok(received) => break received.bytes,
            }
        };
        let file = control.drain().find_map(|message| match message {
            RecvAncillaryMessage::ScmRights(mut files) => files.next(),
            _ => None,
        });
        let (tag, answer) = Answer::decode(&packet[..len])?;
        Ok((tag, answer, file))
    }
}

/// To be polled, while an answer is on its way.
impl AsFd for Client {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Lease {
    /// Maps all of it at a multiple of its page size.
    ///
    /// # Errors
    /// [`ClientError::Map`].
    pub fn map(&self) -> Result<SharedMap, ClientError> {
        let (bytes, page) = (self.granted.bytes as usize, self.granted.page.bytes() as usize);
        SharedMap::new(self.file.as_fd(), bytes, page).map_err(ClientError::Map)
    }

    /// Size, number and seals are as granted: it cannot be cut short under the client. A
    /// tmpfs has no seals.
    fn check(&self) -> Result<(), ClientError> {
        let stat = fstat(&self.file).map_err(ClientError::Gone)?;
        if stat.st_size as u64 != self.granted.bytes || stat.st_ino != self.granted.inode {
            return Err(ClientError::NotAsGranted("another file came with it"));
        }
        if self.granted.backing == Backing::Tmpfs {
            return Ok(());
        }
        let seals = fcntl_get_seals(&self.file).unwrap_or(SealFlags::empty());
        if !seals.contains(SealFlags::GROW | SealFlags::SHRINK | SealFlags::SEAL) {
            return Err(ClientError::NotAsGranted("its size is not sealed"));
        }
        Ok(())
    }
}
