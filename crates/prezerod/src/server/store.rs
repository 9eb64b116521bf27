//! What the service manager keeps for the next broker, should this one be killed: stock, and marks of leases.
//!
//! Contract: a descriptor is in the manager's store for as long as its [`Entry`] lives. An inode is taken out before its
//! lease is sent, and put in when it enters the stock. So after any end the store has the stock, and at most the lease
//! of that moment: that one is sealed, and refused. An orderly end, and a panic, leave the store as it is.

use std::cell::{Cell, RefCell};
use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::rc::Rc;
use std::time::Duration;

use prezero_sys::escape::escape;
use rustix::fs::fstat;
use rustix::io::Errno;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{
    AddressFamily, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketAddrUnix,
    SocketFlags, SocketType, sendmsg_addr, socket_with,
};

use super::closing::Closing;
use crate::broker::Inode;
use crate::inode::audit::{self, Depth, Finding};
use crate::inode::{self, Kind, mounted};
use crate::protocol::{Backing, Page};
use crate::tenant::{Payer, may_operate};

/// What names of stored inodes begin with.
pub const STOCK: &str = "stock";
/// What names of marks begin with.
pub const MARKS: &str = "marks";
/// Longest name that systemd stores a descriptor under.
/// Fixed: the manager's.
const MOST_NAME: usize = 255;

/// How long the manager may take to read a message, or to forget what it stored.
pub const PATIENCE: Duration = Duration::from_secs(5);

/// The socket of the service manager, if there is one.
#[derive(Clone, Debug, Default)]
pub struct Store {
    inner: Rc<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    notify: Option<(OwnedFd, SocketAddrUnix)>,
    /// It may have descriptors: what it has it may read and write, whichever client leases it.
    keeps: bool,
    /// Names that the manager had no room to hear of.
    unsent: RefCell<Vec<String>>,
    /// This process ends: what is stored stays.
    closed: Cell<bool>,
    closing: Closing,
}

impl Store {
    /// At this address, as `NOTIFY_SOCKET` has it.
    pub fn at(path: &str) -> Store {
        let address = match path.strip_prefix('@') {
            Some(name) => SocketAddrUnix::new_abstract_name(name.as_bytes()),
            None => SocketAddrUnix::new(path),
        };
        let socket =
            socket_with(AddressFamily::UNIX, SocketType::DGRAM, SocketFlags::CLOEXEC, None);
        let notify = socket.ok().zip(address.ok());
        if let Some((socket, _)) = &notify {
            // A manager that is stopped must not stop the broker.
            let _ = set_socket_timeout(socket, Timeout::Send, Some(PATIENCE));
        }
        // A variable may come from another user (`su`, `sudo -E`), and any user may have an abstract name.
        let owner = std::fs::symlink_metadata(path).map(|info| info.uid());
        let keeps = owner.is_ok_and(may_operate);
        if notify.is_some() && !keeps {
            prezero_sys::log!(
                "prezerod: NOTIFY_SOCKET = {} is neither root's nor this user's: no stock is kept there",
                escape(path)
            );
        }
        Store { inner: Rc::new(Inner { notify, keeps, ..Inner::default() }) }
    }

    /// Whether a manager listens.
    pub fn is_there(&self) -> bool {
        self.inner.notify.is_some()
    }

    /// Sends a message, and a descriptor.
    ///
    /// # Errors
    /// There is no manager, or it has no room.
    pub fn send(
        &self,
        message: &str,
        file: Option<BorrowedFd<'_>>,
        flags: SendFlags,
    ) -> Result<(), Errno> {
        let Some((socket, address)) = &self.inner.notify else { return Err(Errno::NOTCONN) };
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        let files: Vec<_> = file.into_iter().collect();
        if !files.is_empty() && !control.push(SendAncillaryMessage::ScmRights(&files)) {
            return Err(Errno::NOBUFS);
        }
        let slices = &[IoSlice::new(message.as_bytes())];
        let flags = flags | SendFlags::NOSIGNAL;
        sendmsg_addr(socket, address, slices, &mut control, flags).map(drop)
    }

    /// Has the manager keep a descriptor under a name of its own; `None`: it does not.
    pub fn put(&self, name: String, file: BorrowedFd<'_>) -> Option<Entry> {
        if !self.inner.keeps {
            return None;
        }
        let message = format!("FDSTORE=1\nFDNAME={name}\nFDPOLL=0");
        // Behind what could not be said yet: the same name may be among it.
        let heard = self.flush() && self.send(&message, Some(file), SendFlags::DONTWAIT).is_ok();
        heard.then(|| self.known(name))
    }

    /// What the manager keeps already.
    pub fn known(&self, name: String) -> Entry {
        Entry { store: self.clone(), name }
    }

    /// Says what could not be said; true: all of it.
    pub fn flush(&self) -> bool {
        let mut unsent = self.inner.unsent.borrow_mut();
        while let Some(name) = unsent.first() {
            match self.send(&removal(name), None, SendFlags::DONTWAIT) {
                Err(Errno::AGAIN | Errno::INTR | Errno::NOBUFS) => return false,
                // Without a manager there is no store.
                _ => drop(unsent.remove(0)),
            }
        }
        true
    }

    /// Closes an inode that nothing waits for.
    pub fn discard(&self, file: OwnedFd) {
        self.inner.closing.close(file);
    }

    /// The process ends: what is stored is the next broker's.
    pub fn close(&self) {
        self.flush();
        self.inner.closed.set(true);
    }
}

/// The message that ends a descriptor's time in the store.
pub fn removal(name: &str) -> String {
    format!("FDSTOREREMOVE=1\nFDNAME={name}")
}

/// A descriptor in the store; dropped, it is taken out.
#[derive(Debug)]
pub struct Entry {
    store: Store,
    name: String,
}

impl Drop for Entry {
    fn drop(&mut self) {
        if self.store.inner.closed.get() || std::thread::panicking() {
            return;
        }
        self.store.inner.unsent.borrow_mut().push(std::mem::take(&mut self.name));
        self.store.flush();
    }
}

/// An inode that survives the broker while it is stock.
#[derive(Debug)]
pub struct Kept {
    file: OwnedFd,
    store: Store,
    entry: RefCell<Option<Entry>>,
}

impl Kept {
    /// A new one, which no store has.
    pub fn new(file: OwnedFd, store: &Store) -> Kept {
        Kept { file, store: store.clone(), entry: RefCell::default() }
    }

    /// One that came out of the store, where it still is.
    pub fn stored(file: OwnedFd, entry: Entry) -> Kept {
        Kept { file, store: entry.store.clone(), entry: RefCell::new(Some(entry)) }
    }

    /// A client's, from now on: the store has it no more.
    pub fn into_file(self) -> OwnedFd {
        self.entry.replace(None);
        self.file
    }
}

impl AsFd for Kept {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

impl Inode for Kept {
    fn is_fresh(&self, bytes: u64) -> bool {
        inode::is_fresh(self.as_fd(), bytes)
    }

    fn audit(&self, bytes: u64, depth: Depth, pick: &mut dyn FnMut(u64) -> u64) -> Finding {
        let Ok(inside) = mounted::file(self.as_fd()) else { return Finding::Unreadable };
        audit::audit(inside.as_ref().unwrap_or(&self.file).as_fd(), bytes, depth, pick)
    }

    fn truncate(&self, bytes: u64) -> bool {
        inode::truncate(self.as_fd(), bytes).is_ok()
    }

    fn seal(&self) -> Option<u64> {
        inode::seal(self.as_fd()).ok()
    }

    fn discard(self) {
        self.entry.replace(None);
        self.store.discard(self.file);
    }

    fn keep(&self, kind: Kind, charged: Option<&str>) {
        if self.entry.borrow().is_some() || !self.store.is_there() {
            return;
        }
        let name = fstat(&self.file).ok().and_then(|stat| name(kind, stat.st_ino, charged));
        if let Some(name) = name {
            self.entry.replace(self.store.put(name, self.file.as_fd()));
        }
    }
}

/// The name that an inode is stored under; `None`: what has no seals is not stored, nor what has no name that a manager
/// takes.
fn name(kind: Kind, inode: u64, charged: Option<&str>) -> Option<String> {
    let Kind { page, backing, node, .. } = kind;
    let charged = charged.unwrap_or_default();
    let name = format!("{STOCK}.{page}.{}.{node}.{inode}.{charged}", backing.name());
    let plain = |byte: u8| byte.is_ascii_graphic() && byte != b':';
    let stored = backing != Backing::Tmpfs && name.len() <= MOST_NAME && name.bytes().all(plain);
    stored.then_some(name)
}

/// The kind of the inode that was stored under a name, and the cgroup that it is charged to (`None`: the broker's own);
/// `None`: it names no stock inode.
pub fn named(name: &str) -> Option<(Kind, Option<String>)> {
    let mut parts = name.splitn(6, '.').skip(1);
    let page = parts.next()?;
    let page = Page::ALL.into_iter().find(|known| known.to_string() == page)?;
    let backing = parts.next()?;
    let backing = [Backing::Hugetlb, Backing::Thp].into_iter().find(|b| b.name() == backing)?;
    let node = parts.next()?.parse().ok()?;
    parts.next()?.parse::<u64>().ok()?;
    let charged = parts.next()?;
    let charged = Some(charged).filter(|cgroup| !cgroup.is_empty()).map(str::to_owned);
    Some((Kind { page, backing, node, payer: Payer::BROKER }, charged))
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixDatagram;

    use super::*;
    use prezero_testing::alone;

    #[test]
    fn no_inode_is_given_to_another_users_manager() {
        let _alone = alone();
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("notify");
        let manager = UnixDatagram::bind(&path).unwrap();
        manager.set_nonblocking(true).unwrap();
        let at = path.to_str().unwrap();
        let file = std::fs::File::open("/dev/null").unwrap();
        assert!(Store::at(at).put("one".into(), file.as_fd()).is_some(), "its own");
        while manager.recv(&mut [0; 128]).is_ok() {}
        let hidden = format!("@prezero-{}", std::process::id());
        assert!(Store::at(&hidden).put("two".into(), file.as_fd()).is_none(), "any user's");
        if std::os::unix::fs::chown(&path, Some(65534), None).is_ok() {
            assert!(Store::at(at).put("three".into(), file.as_fd()).is_none());
            assert!(manager.recv(&mut [0; 128]).is_err(), "it was sent all the same");
        }
    }

    #[test]
    fn a_name_says_what_an_inode_is_and_who_pays() {
        for (page, backing, node, charged) in [
            (Page::Huge, Backing::Thp, 0, None),
            (Page::Giant, Backing::Hugetlb, 7, Some("/a.slice/b.scope")),
        ] {
            let kind = Kind { page, backing, node, payer: Payer::BROKER };
            let name = name(kind, 99, charged).unwrap();
            assert_eq!(named(&name), Some((kind, charged.map(str::to_owned))), "{name}");
        }
        let kind = Kind { page: Page::Huge, backing: Backing::Thp, node: 0, payer: Payer::BROKER };
        for bad in
            ["stock", "stock.3M.thp.0.1.", "stock.2M.thp.0.x.", "stock.2M.thp.0.1", "marks.1"]
        {
            assert_eq!(named(bad), None, "{bad}");
        }
        assert_eq!(name(kind, 1, Some("/a b")), None);
        assert_eq!(name(Kind { backing: Backing::Tmpfs, ..kind }, 1, None), None);
    }
}
