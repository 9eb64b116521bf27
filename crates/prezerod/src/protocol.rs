//! The frames between clients and broker: pure functions over bytes.
//!
//! One frame is one packet of a `SOCK_SEQPACKET` Unix socket. Integers are little endian;
//! sizes are bytes, times milliseconds or nanoseconds as their names say. Each frame begins
//! with eight bytes: `P` `Z`, the version (1), the kind, and a tag of four bytes that the
//! client chooses and the answer repeats. `PROTOCOL.md` holds the same for people who
//! write a client in another language; a test compares the two.

use std::fmt;

/// The version that this file speaks.
pub const VERSION: u8 = 1;
/// Longest request, bytes. Longer packets are malformed.
pub const MAX_REQUEST: usize = 128;
/// Longest answer, bytes: a part of a report. All others are of 512 bytes or less.
/// Fixed: the protocol's; a socket's buffer holds several.
pub const MAX_ANSWER: usize = 16 << 10;
/// Longest text within an answer that is no part of a report, bytes.
pub const MAX_TEXT: usize = 512 - HEADER - 16;
/// Longest name of a named lease, bytes.
pub const MAX_NAME: usize = 64;
/// Longest text of one part of a report, bytes.
pub const MAX_PART: usize = MAX_ANSWER - HEADER - 12;
const HEADER: usize = 8;
const MAGIC: [u8; 2] = *b"PZ";

/// A size of page.
#[derive(Clone, Copy, PartialEq, Eq, Debug, PartialOrd, Ord, Hash)]
#[cfg_attr(
    feature = "broker",
    derive(serde::Serialize, serde::Deserialize),
    serde(try_from = "u64", into = "u64")
)]
pub enum Page {
    /// 2 MiB.
    Huge,
    /// 1 GiB.
    Giant,
}

impl Page {
    /// Both sizes, the smaller first.
    pub const ALL: [Page; 2] = [Page::Huge, Page::Giant];

    /// Bytes.
    pub const fn bytes(self) -> u64 {
        match self {
            Page::Huge => 2 << 20,
            Page::Giant => 1 << 30,
        }
    }

    /// The page of `bytes` bytes.
    pub fn of(bytes: u64) -> Option<Page> {
        Page::ALL.into_iter().find(|page| page.bytes() == bytes)
    }
}

impl From<Page> for u64 {
    fn from(page: Page) -> u64 {
        page.bytes()
    }
}

impl TryFrom<u64> for Page {
    type Error = &'static str;

    fn try_from(bytes: u64) -> Result<Page, &'static str> {
        Page::of(bytes).ok_or("the page is neither 2 MiB nor 1 GiB")
    }
}

impl fmt::Display for Page {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Page::Huge => "2M",
            Page::Giant => "1G",
        })
    }
}

/// What the kernel makes the pages of.
#[derive(Clone, Copy, PartialEq, Eq, Debug, PartialOrd, Ord, Hash)]
#[cfg_attr(
    feature = "broker",
    derive(serde::Serialize, serde::Deserialize),
    serde(try_from = "u32", into = "u32")
)]
#[repr(u32)]
pub enum Backing {
    /// A memfd of the hugetlb pool.
    Hugetlb = 1,
    /// A memfd of ordinary shared memory in transparent huge pages.
    Thp = 2,
    /// A file without a name on a tmpfs of the broker's, mounted `huge=always`: for kernels
    /// that cannot make transparent pages of a memfd. Its size cannot be sealed.
    Tmpfs = 3,
}

/// Which cgroup is charged for a lease's memory, for as long as it lives.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum Charged {
    /// The broker's own, which populated it.
    Broker = 1,
    /// The one that the operator named for the tenant; reports say which.
    Tenant = 2,
}

/// Memory that a client wants.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
#[cfg_attr(feature = "broker", derive(serde::Serialize, serde::Deserialize))]
pub struct Want {
    /// How much; a multiple of the page, not 0.
    pub bytes: u64,
    /// In pages of this size.
    pub page: Page,
    /// On this NUMA node; `None`: on any.
    pub node: Option<u16>,
}

/// The name of a named lease: 1 to [`MAX_NAME`] letters, digits, `-`, `_` and `.`, the first neither `.` nor `-`:
/// commands would take it for an option.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name {
    bytes: [u8; MAX_NAME],
    len: u8,
}

impl Name {
    /// The name, if it is one.
    pub fn new(name: &str) -> Option<Name> {
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
        let is_one = !name.is_empty() && !name.starts_with(['.', '-']) && name.bytes().all(plain);
        let mut bytes = [0; MAX_NAME];
        bytes.get_mut(..name.len()).filter(|_| is_one)?.copy_from_slice(name.as_bytes());
        Some(Name { bytes, len: name.len() as u8 })
    }

    /// As text.
    pub fn as_str(&self) -> &str {
        // It was text when it became a name.
        std::str::from_utf8(&self.bytes[..usize::from(self.len)]).unwrap_or_default()
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_str().fmt(f)
    }
}

/// Which report.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum Report {
    /// What is there and which client holds what, JSON.
    Stock = 1,
    /// The counters, Prometheus text.
    Metrics = 2,
    /// Which client got what, waited or was refused, and why: a JSON object a line.
    Log = 3,
}

/// What a client has without a lease.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Otherwise {
    /// Nothing: it comes back for one.
    ComesBack,
    /// Memory of its own, with which it starts.
    Plain,
}

/// Whether the broker leases.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum Drain {
    /// As ever.
    Off = 0,
    /// It makes nothing, has nothing ready, and leases nothing.
    On = 1,
}

/// What a client may say.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Request {
    /// Lease this now, or within `wait_ms`.
    Lease {
        /// What.
        want: Want,
        /// How long the client would wait, ms; 0: not at all.
        wait_ms: u32,
    },
    /// Lease this, now or within the part of `wait_ms` in which waiting beats memory of the client's own:
    /// it starts with that otherwise, and does not come back.
    LeaseOrPlain {
        /// What.
        want: Want,
        /// The longest wait, ms.
        wait_ms: u32,
    },
    /// Lease this as a file under a name; what lies there already is the answer.
    LeaseNamed {
        /// What.
        want: Want,
        /// As for `Lease`.
        wait_ms: u32,
        /// The name.
        name: Name,
    },
    /// How much of such pages is there?
    Available {
        /// Of this size.
        page: Page,
        /// On this node; `None`: on all.
        node: Option<u16>,
    },
    /// Send a part of a report.
    Report {
        /// Which.
        report: Report,
        /// Where to go on: what the part before said is next; 0: from the beginning.
        from: u64,
    },
    /// Leave so much of the hugetlb pool of such pages to others on this host, until told otherwise.
    Yield {
        /// Of this size.
        page: Page,
        /// Bytes that others were promised and have not taken.
        bytes: u64,
    },
    /// For maintenance: lease no more, or lease again.
    Drain(Drain),
    /// Keep as many pieces ready until they are leased, or for a time: a server ends, and starts again.
    Expect {
        /// A piece.
        want: Want,
        /// For how long, seconds.
        seconds: u32,
        /// How many; 0: such are expected no more.
        pieces: u32,
    },
}

impl Request {
    /// The memory that is asked for.
    pub fn want(&self) -> Option<Want> {
        match self {
            Request::Lease { want, .. }
            | Request::LeaseOrPlain { want, .. }
            | Request::LeaseNamed { want, .. } => Some(*want),
            _ => None,
        }
    }
}

/// Why there is no lease.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash, PartialOrd, Ord)]
#[repr(u32)]
pub enum Reason {
    /// The frame is not of this protocol; the connection ends.
    Malformed = 1,
    /// The size is 0, no multiple of the page, or more than may ever be leased.
    Size = 2,
    /// No such NUMA node.
    Node = 3,
    /// This host has no such pages.
    Host = 4,
    /// No peer by that uid, gid or cgroup may lease.
    Denied = 5,
    /// The tenant holds as much as it may.
    Quota = 6,
    /// Too many connections, or requests of one.
    Busy = 7,
    /// None ready, and the client would not wait (longer).
    Empty = 8,
    /// Memory is short: nothing is made now.
    Pressure = 9,
    /// An audit found memory that was not zero: nothing of that kind is leased any more.
    Audit = 10,
    /// The kernel refused to make it.
    Kernel = 12,
    /// The operator drains the broker.
    Drained = 13,
}

/// A refusal: the reason for programs, and the same for people, with the mend.
pub type Refusal = (Reason, String);

/// What is told of a lease; the memory itself comes as a descriptor with the frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Granted {
    /// The broker's number for it, never used again.
    pub lease: u64,
    /// Bytes, all populated.
    pub bytes: u64,
    /// Page size.
    pub page: Page,
    /// NUMA node.
    pub node: u16,
    /// What it is made of.
    pub backing: Backing,
    /// Inode number, as `fstat` tells it.
    pub inode: u64,
    /// How long it had been ready, ns; 0: it was made for this request.
    pub age_ns: u64,
    /// CPU time that making it took, ns.
    pub cost_ns: u64,
    /// How long the request had to wait, ns.
    pub waited_ns: u64,
    /// Whose cgroup the memory and that time are charged to.
    pub charged: Charged,
}

impl Granted {
    /// What it is, in a client's words.
    pub fn want(&self) -> Want {
        Want { bytes: self.bytes, page: self.page, node: Some(self.node) }
    }
}

/// What is told of a lease that lies under a name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NamedLease {
    /// Bytes, all populated.
    pub bytes: u64,
    /// Page size.
    pub page: Page,
    /// What it is made of.
    pub backing: Backing,
    /// Inode number, as `stat` tells it.
    pub inode: u64,
    /// How long it had been ready, ns; 0: it was made for this request, or found.
    pub age_ns: u64,
    /// How long the request had to wait, ns.
    pub waited_ns: u64,
    /// Since when it lies there.
    pub since: Since,
}

/// Since when a named lease lies under its name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum Since {
    /// Since this request.
    Now = 0,
    /// It was found.
    Before = 1,
}

/// What is there for a client.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Available {
    /// Bytes that lie ready.
    pub ready: u64,
    /// Bytes of the largest lease that is ready.
    pub largest: u64,
    /// Bytes being made.
    pub making: u64,
    /// Bytes that are made in a second, recently; 0: not known yet.
    pub pace: u64,
    /// Bytes that this client's tenant may still lease.
    pub quota_left: u64,
}

/// What the broker answers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Answer {
    /// Yes, with one descriptor.
    Lease(Granted),
    /// Yes, as a file under a name.
    Named {
        /// What.
        lease: NamedLease,
        /// The file, as the broker sees it.
        path: String,
    },
    /// No, and the mend.
    No(Reason, String),
    /// Not now, but probably in this time, ns.
    When {
        /// At the current pace, ns.
        estimate_ns: u64,
        /// Why not now.
        reason: Reason,
        /// The same for people.
        text: String,
    },
    /// The stock, as this client may have it.
    Available(Available),
    /// A part of a report: all parts, one behind the other, are the report.
    Part {
        /// Where the next one begins; 0: this is the last.
        next: u64,
        /// At most [`MAX_PART`] bytes.
        text: String,
    },
    /// Done.
    Done,
}

/// A packet that is no frame of this protocol.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Malformed {
    /// Shorter than a header, or the wrong length for its kind.
    #[error("{0} bytes are no frame of its kind; see PROTOCOL.md")]
    Length(usize),
    /// Does not begin with `PZ`.
    #[error("does not begin with PZ; is this a client of prezerod?")]
    Magic,
    /// Another version.
    #[error("version {0}; this broker speaks version 1")]
    Version(u8),
    /// No such kind.
    #[error("no frame of kind {0}; is the client of another version? See PROTOCOL.md")]
    Kind(u8),
    /// A field holds what it cannot.
    #[error("{0}; see PROTOCOL.md")]
    Field(&'static str),
}

mod wire;

#[cfg(test)]
mod tests;
