//! systemd: sockets and inodes that it hands over, and what it is told.
//!
//! Stock is put into its descriptor store only at an orderly stop, when nothing is leased
//! any more, so that it never holds memory which belongs to a client. At the start all of it
//! is taken out again, and a barrier waited for, before the first lease. A descriptor that
//! comes back all the same was sealed when it was leased, and is refused for that.

use std::env;
use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use prezero_sys::peer;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::fstat;
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketAddrUnix,
    SocketFlags, SocketType, sendmsg_addr, socket_with,
};
use rustix::pipe::{PipeFlags, pipe_with};

use crate::inode::Kind;
use crate::protocol::{Backing, Page};
use crate::stock::StockInode;
use crate::tenant::Payer;

/// What names a stored inode begin with; the rest tells its kind.
const STORED: &str = "stock";
/// What they began with in earlier versions.
const STORED_BEFORE: &str = "blank";
/// Longest name that systemd stores a descriptor under.
const NAME_MAX: usize = 255;
/// How long the service manager may take to forget what it stored.
const BARRIER: Duration = Duration::from_secs(5);

/// The service manager, if there is one.
#[derive(Debug)]
pub struct Service {
    notify: Option<(OwnedFd, SocketAddrUnix)>,
    /// Half of the watchdog's time; `None`: no watchdog.
    pub watchdog: Option<Duration>,
}

/// What was handed over.
#[derive(Debug, Default)]
pub struct Inherited {
    /// A socket that listens for clients.
    pub listener: Option<OwnedFd>,
    /// One that listens for Prometheus.
    pub metrics: Option<OwnedFd>,
    /// What was stored: names, and inodes.
    pub stored: Vec<(String, OwnedFd)>,
}

impl Service {
    /// Reads the environment, and takes what was handed over. To be called first of all.
    pub fn take() -> (Service, Inherited) {
        let number = |name: &str| env::var(name).ok()?.parse::<u64>().ok();
        let mine = |name: &str| number(name) == Some(u64::from(std::process::id()));
        let mut inherited = Inherited::default();
        if mine("LISTEN_PID") {
            let count = number("LISTEN_FDS").unwrap_or(0) as usize;
            let names = env::var("LISTEN_FDNAMES").unwrap_or_default();
            let names = names.split(':').map(str::to_owned).chain(std::iter::repeat(String::new()));
            // SAFETY: the manager opened these for this process, which has not looked at a
            // descriptor yet.
            #[expect(unsafe_code, reason = "descriptors by number, as the manager gives them")]
            let files = unsafe { peer::inherited(count) };
            for (file, name) in files.into_iter().zip(names) {
                match name.as_str() {
                    _ if [STORED, STORED_BEFORE].iter().any(|stored| name.starts_with(stored)) => {
                        inherited.stored.push((name, file))
                    }
                    "metrics" => inherited.metrics = Some(file),
                    _ => inherited.listener = Some(file),
                }
            }
        }
        let watched = env::var_os("WATCHDOG_PID").is_none() || mine("WATCHDOG_PID");
        let watchdog = number("WATCHDOG_USEC").filter(|_| watched);
        let service = Service {
            notify: env::var("NOTIFY_SOCKET").ok().and_then(|path| notify_socket(&path)),
            watchdog: watchdog.map(|us| Duration::from_micros(us / 2)),
        };
        (service, inherited)
    }

    /// Whether a manager listens.
    pub fn is_there(&self) -> bool {
        self.notify.is_some()
    }

    /// Tells the manager something; nothing depends on it.
    pub fn tell(&self, message: &str) {
        let _ = self.send(message, None);
    }

    /// Stores an inode with the manager, and which cgroup it is charged to. It is closed here
    /// either way. What has no seals is not stored, nor what has no name that a manager takes.
    pub fn store(&self, inode: StockInode<OwnedFd>, charged: Option<&str>) {
        let Kind { page, backing, node, .. } = inode.kind;
        let charged = charged.unwrap_or_default();
        let name = format!("{STORED}.{page}.{}.{node}.{charged}", backing.name());
        let plain = |byte: u8| byte.is_ascii_graphic() && byte != b':';
        if backing == Backing::Tmpfs || name.len() > NAME_MAX || !name.bytes().all(plain) {
            return;
        }
        let _ = self.send(&format!("FDSTORE=1\nFDNAME={name}\nFDPOLL=0"), Some(inode.file.as_fd()));
    }

    /// Makes the manager forget what it stored, and waits until it has. False: it may still
    /// hold some, and it may not be leased.
    pub fn forget<'a>(&self, names: impl Iterator<Item = &'a str>) -> bool {
        for name in names {
            if self.send(&format!("FDSTOREREMOVE=1\nFDNAME={name}"), None).is_err() {
                return false;
            }
        }
        self.barrier().is_ok()
    }

    /// Waits until the manager has read everything that was sent before: it closes the pipe.
    ///
    /// # Errors
    /// There is no manager, or it has not read it in time.
    pub fn barrier(&self) -> Result<(), Errno> {
        let (read, write) = pipe_with(PipeFlags::CLOEXEC)?;
        self.send("BARRIER=1", Some(write.as_fd()))?;
        drop(write);
        let timeout = Timespec::try_from(BARRIER).ok();
        match poll(&mut [PollFd::new(&read, PollFlags::HUP)], timeout.as_ref())? {
            0 => Err(Errno::TIMEDOUT),
            _ => Ok(()),
        }
    }

    fn send(&self, message: &str, file: Option<BorrowedFd<'_>>) -> Result<(), Errno> {
        let Some((socket, address)) = &self.notify else { return Err(Errno::NOTCONN) };
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        let files: Vec<_> = file.into_iter().collect();
        if !files.is_empty() && !control.push(SendAncillaryMessage::ScmRights(&files)) {
            return Err(Errno::NOBUFS);
        }
        let slices = &[IoSlice::new(message.as_bytes())];
        sendmsg_addr(socket, address, slices, &mut control, SendFlags::NOSIGNAL).map(drop)
    }
}

fn notify_socket(path: &str) -> Option<(OwnedFd, SocketAddrUnix)> {
    let address = match path.strip_prefix('@') {
        Some(name) => SocketAddrUnix::new_abstract_name(name.as_bytes()),
        None => SocketAddrUnix::new(path),
    };
    let kind = SocketType::DGRAM;
    let socket = socket_with(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None);
    Some((socket.ok()?, address.ok()?))
}

/// The inode that was stored under a name, and the cgroup that it is charged to (`None`: the
/// broker's own); `None`: it is no stock inode.
pub fn stored(
    name: &str,
    inode: OwnedFd,
    now_ns: u64,
) -> Option<(StockInode<OwnedFd>, Option<String>)> {
    let mut parts = name.splitn(5, '.').skip(1);
    let page = parts.next()?;
    let page = Page::ALL.into_iter().find(|known| known.to_string() == page)?;
    let backing = parts.next()?;
    let backing = [Backing::Hugetlb, Backing::Thp].into_iter().find(|b| b.name() == backing)?;
    let node = parts.next()?.parse().ok()?;
    let charged = parts.next().filter(|cgroup| !cgroup.is_empty()).map(str::to_owned);
    let kind = Kind { page, backing, node, payer: Payer::BROKER };
    let bytes = fstat(&inode).ok()?.st_size as u64;
    let inode = StockInode { file: inode, kind, bytes, made_ns: now_ns, cost_ns: 0 };
    (bytes > 0).then_some((inode, charged))
}
