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
pub const MAX_REQUEST: usize = 64;
/// Longest answer, bytes.
pub const MAX_ANSWER: usize = 512;
/// Longest text within an answer, bytes.
pub const MAX_TEXT: usize = MAX_ANSWER - HEADER - 16;
const HEADER: usize = 8;
const MAGIC: [u8; 2] = *b"PZ";

/// A size of page.
#[derive(Clone, Copy, PartialEq, Eq, Debug, PartialOrd, Ord, Hash)]
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

    /// The page of so many bytes.
    pub fn of(bytes: u64) -> Option<Page> {
        Page::ALL.into_iter().find(|page| page.bytes() == bytes)
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
#[repr(u32)]
pub enum Backing {
    /// A memfd of the hugetlb pool.
    Hugetlb = 1,
    /// A memfd of ordinary shared memory in transparent huge pages.
    Thp = 2,
}

impl Backing {
    /// Its name in reports and metrics.
    pub fn name(self) -> &'static str {
        match self {
            Backing::Hugetlb => "hugetlb",
            Backing::Thp => "thp",
        }
    }

    /// The backing of that number on the wire.
    pub fn from_wire(number: u32) -> Option<Backing> {
        match number {
            1 => Some(Backing::Hugetlb),
            2 => Some(Backing::Thp),
            _ => None,
        }
    }
}

/// Memory that somebody wants.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub struct Want {
    /// How much; a multiple of the page, not 0.
    pub bytes: u64,
    /// In pages of this size.
    pub page: Page,
    /// On this NUMA node; `None`: on any.
    pub node: Option<u16>,
}

/// Which report.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Report {
    /// What is there and who holds what, JSON.
    Stock,
    /// The counters, Prometheus text.
    Metrics,
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
    /// Lease what was reserved under this ticket.
    Redeem {
        /// From [`Answer::Reserved`].
        ticket: u64,
    },
    /// Keep this for me for so long.
    Reserve {
        /// What.
        want: Want,
        /// How long, ms; the broker may bound it.
        hold_ms: u32,
    },
    /// Give up a reservation; ticket 0: the request of this connection that waits.
    Cancel {
        /// From [`Answer::Reserved`], or 0.
        ticket: u64,
    },
    /// How much of such pages is there?
    Available {
        /// Of this size.
        page: Page,
        /// On this node; `None`: on all.
        node: Option<u16>,
    },
    /// Send a report, as a file.
    Report(Report),
}

/// Why there is no lease.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash, PartialOrd, Ord)]
#[repr(u32)]
pub enum Reason {
    /// The frame is none of this protocol; the connection ends.
    Malformed = 1,
    /// The size is 0, no multiple of the page, or more than may ever be leased.
    Size = 2,
    /// No such NUMA node.
    Node = 3,
    /// This host has no such pages.
    Host = 4,
    /// Nobody by that uid, gid or cgroup may lease.
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
    /// No such ticket, or it is over.
    Ticket = 11,
    /// The kernel refused to make it.
    Kernel = 12,
}

impl Reason {
    /// All, in the order of their numbers.
    pub const ALL: [Reason; 12] = [
        Reason::Malformed,
        Reason::Size,
        Reason::Node,
        Reason::Host,
        Reason::Denied,
        Reason::Quota,
        Reason::Busy,
        Reason::Empty,
        Reason::Pressure,
        Reason::Audit,
        Reason::Ticket,
        Reason::Kernel,
    ];

    /// Its name in metrics and reports.
    pub fn name(self) -> &'static str {
        match self {
            Reason::Malformed => "malformed",
            Reason::Size => "size",
            Reason::Node => "node",
            Reason::Host => "host",
            Reason::Denied => "denied",
            Reason::Quota => "quota",
            Reason::Busy => "busy",
            Reason::Empty => "empty",
            Reason::Pressure => "pressure",
            Reason::Audit => "audit",
            Reason::Ticket => "ticket",
            Reason::Kernel => "kernel",
        }
    }

    fn from_wire(number: u32) -> Option<Reason> {
        Reason::ALL.get(usize::try_from(number.checked_sub(1)?).ok()?).copied()
    }
}

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
    /// CPU time that making it took, ns. It, and the memory until the client's own cgroup
    /// touches more, are charged to the broker's cgroup.
    pub cost_ns: u64,
    /// How long the request had to wait, ns.
    pub waited_ns: u64,
}

/// What the broker answers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Answer {
    /// Yes, with one descriptor.
    Lease(Granted),
    /// No, and the mend.
    No(Reason, String),
    /// Not now, but probably so many ns from now.
    When {
        /// At the current pace, ns.
        estimate_ns: u64,
        /// Why not now.
        reason: Reason,
        /// The same for people.
        text: String,
    },
    /// It is kept.
    Reserved {
        /// For [`Request::Redeem`].
        ticket: u64,
        /// Bytes.
        bytes: u64,
        /// For so long, ms.
        hold_ms: u32,
    },
    /// The stock, as this client may have it.
    Available {
        /// Bytes that lie ready.
        ready: u64,
        /// Bytes of the largest lease that is ready.
        largest: u64,
        /// Bytes being made.
        making: u64,
        /// Bytes that are made in a second, of late; 0: not known yet.
        pace: u64,
        /// Bytes that this client's tenant may still lease.
        quota_left: u64,
    },
    /// The report comes as a descriptor; so many bytes.
    Report {
        /// Length of the file.
        bytes: u64,
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
    #[error("no frame of kind {0}; see PROTOCOL.md")]
    Kind(u8),
    /// A field holds what it cannot.
    #[error("{0}; see PROTOCOL.md")]
    Field(&'static str),
}

mod kind {
    pub const LEASE: u8 = 1;
    pub const RESERVE: u8 = 2;
    pub const REDEEM: u8 = 3;
    pub const CANCEL: u8 = 4;
    pub const AVAILABLE: u8 = 5;
    pub const REPORT: u8 = 6;
    pub const GRANTED: u8 = 129;
    pub const NO: u8 = 130;
    pub const WHEN: u8 = 131;
    pub const RESERVED: u8 = 132;
    pub const STOCK: u8 = 133;
    pub const FILE: u8 = 134;
    pub const DONE: u8 = 135;
}

/// A node of -1 stands for any.
const ANY_NODE: i32 = -1;

struct Reader<'a> {
    rest: &'a [u8],
    whole: usize,
}

impl<'a> Reader<'a> {
    fn take<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let (head, rest) = self.rest.split_first_chunk().ok_or(Malformed::Length(self.whole))?;
        self.rest = rest;
        Ok(*head)
    }

    fn u32(&mut self) -> Result<u32, Malformed> {
        self.take().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Result<u64, Malformed> {
        self.take().map(u64::from_le_bytes)
    }

    fn page(&mut self) -> Result<Page, Malformed> {
        Page::of(self.u64()?).ok_or(Malformed::Field("the page is neither 2 MiB nor 1 GiB"))
    }

    fn node(&mut self) -> Result<Option<u16>, Malformed> {
        match self.take().map(i32::from_le_bytes)? {
            ANY_NODE => Ok(None),
            node => {
                let node = u16::try_from(node);
                node.map(Some).map_err(|_| Malformed::Field("the node is neither -1 nor a node"))
            }
        }
    }

    fn text(&mut self) -> Result<String, Malformed> {
        let len = self.u32()? as usize;
        if len != self.rest.len() || len > MAX_TEXT {
            return Err(Malformed::Length(self.whole));
        }
        let text = std::str::from_utf8(std::mem::take(&mut self.rest));
        text.map(str::to_owned).map_err(|_| Malformed::Field("the text is not UTF-8"))
    }

    fn end(&self) -> Result<(), Malformed> {
        if self.rest.is_empty() { Ok(()) } else { Err(Malformed::Length(self.whole)) }
    }

    /// Reads the header: the kind and the tag.
    fn open(frame: &'a [u8]) -> Result<(Reader<'a>, u8, u32), Malformed> {
        let mut reader = Reader { rest: frame, whole: frame.len() };
        let [p, z, version, kind] = reader.take()?;
        if [p, z] != MAGIC {
            return Err(Malformed::Magic);
        }
        if version != VERSION {
            return Err(Malformed::Version(version));
        }
        let tag = reader.u32()?;
        Ok((reader, kind, tag))
    }
}

struct Writer(Vec<u8>);

impl Writer {
    fn new(kind: u8, tag: u32) -> Writer {
        let [p, z] = MAGIC;
        let mut frame = vec![p, z, VERSION, kind];
        frame.extend(tag.to_le_bytes());
        Writer(frame)
    }

    fn u32(mut self, value: u32) -> Writer {
        self.0.extend(value.to_le_bytes());
        self
    }

    fn u64(mut self, value: u64) -> Writer {
        self.0.extend(value.to_le_bytes());
        self
    }

    fn node(mut self, node: Option<u16>) -> Writer {
        self.0.extend(node.map_or(ANY_NODE, i32::from).to_le_bytes());
        self
    }

    fn text(self, text: &str) -> Writer {
        let end = (0..=MAX_TEXT.min(text.len())).rev().find(|&end| text.is_char_boundary(end));
        let text = &text[..end.unwrap_or(0)];
        let mut writer = self.u32(text.len() as u32);
        writer.0.extend(text.as_bytes());
        writer
    }
}

impl Request {
    /// The frame of this request.
    pub fn encode(&self, tag: u32) -> Vec<u8> {
        let wanted = |kind, want: &Want, ms| {
            let frame = Writer::new(kind, tag).u64(want.bytes).u64(want.page.bytes());
            frame.node(want.node).u32(ms)
        };
        let frame = match self {
            Request::Lease { want, wait_ms } => wanted(kind::LEASE, want, *wait_ms),
            Request::Reserve { want, hold_ms } => wanted(kind::RESERVE, want, *hold_ms),
            Request::Redeem { ticket } => Writer::new(kind::REDEEM, tag).u64(*ticket),
            Request::Cancel { ticket } => Writer::new(kind::CANCEL, tag).u64(*ticket),
            Request::Available { page, node } => {
                Writer::new(kind::AVAILABLE, tag).u64(page.bytes()).node(*node)
            }
            Request::Report(report) => Writer::new(kind::REPORT, tag).u32(match report {
                Report::Stock => 1,
                Report::Metrics => 2,
            }),
        };
        frame.0
    }

    /// Reads a frame: the tag and the request.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn decode(frame: &[u8]) -> Result<(u32, Request), Malformed> {
        let (mut r, kind, tag) = Reader::open(frame)?;
        let want = |r: &mut Reader<'_>| -> Result<Want, Malformed> {
            Ok(Want { bytes: r.u64()?, page: r.page()?, node: r.node()? })
        };
        let request = match kind {
            kind::LEASE => Request::Lease { want: want(&mut r)?, wait_ms: r.u32()? },
            kind::RESERVE => Request::Reserve { want: want(&mut r)?, hold_ms: r.u32()? },
            kind::REDEEM => Request::Redeem { ticket: r.u64()? },
            kind::CANCEL => Request::Cancel { ticket: r.u64()? },
            kind::AVAILABLE => Request::Available { page: r.page()?, node: r.node()? },
            kind::REPORT => Request::Report(match r.u32()? {
                1 => Report::Stock,
                2 => Report::Metrics,
                _ => return Err(Malformed::Field("no such report")),
            }),
            other => return Err(Malformed::Kind(other)),
        };
        r.end()?;
        Ok((tag, request))
    }
}

impl Answer {
    /// The frame of this answer. Text that is too long is cut.
    pub fn encode(&self, tag: u32) -> Vec<u8> {
        let frame = match self {
            Answer::Lease(g) => Writer::new(kind::GRANTED, tag)
                .u64(g.lease)
                .u64(g.bytes)
                .u64(g.page.bytes())
                .node(Some(g.node))
                .u32(g.backing as u32)
                .u64(g.inode)
                .u64(g.age_ns)
                .u64(g.cost_ns)
                .u64(g.waited_ns),
            Answer::No(reason, text) => Writer::new(kind::NO, tag).u32(*reason as u32).text(text),
            Answer::When { estimate_ns, reason, text } => {
                Writer::new(kind::WHEN, tag).u64(*estimate_ns).u32(*reason as u32).text(text)
            }
            Answer::Reserved { ticket, bytes, hold_ms } => {
                Writer::new(kind::RESERVED, tag).u64(*ticket).u64(*bytes).u32(*hold_ms)
            }
            Answer::Available { ready, largest, making, pace, quota_left } => {
                let frame = Writer::new(kind::STOCK, tag).u64(*ready).u64(*largest);
                frame.u64(*making).u64(*pace).u64(*quota_left)
            }
            Answer::Report { bytes } => Writer::new(kind::FILE, tag).u64(*bytes),
            Answer::Done => Writer::new(kind::DONE, tag),
        };
        frame.0
    }

    /// Reads a frame: the tag and the answer.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn decode(frame: &[u8]) -> Result<(u32, Answer), Malformed> {
        let (mut r, kind, tag) = Reader::open(frame)?;
        let reason = |r: &mut Reader<'_>| {
            Reason::from_wire(r.u32()?).ok_or(Malformed::Field("no such reason"))
        };
        let answer = match kind {
            kind::GRANTED => Answer::Lease(Granted {
                lease: r.u64()?,
                bytes: r.u64()?,
                page: r.page()?,
                node: r.node()?.ok_or(Malformed::Field("a lease lies on a node"))?,
                backing: Backing::from_wire(r.u32()?).ok_or(Malformed::Field("no such backing"))?,
                inode: r.u64()?,
                age_ns: r.u64()?,
                cost_ns: r.u64()?,
                waited_ns: r.u64()?,
            }),
            kind::NO => Answer::No(reason(&mut r)?, r.text()?),
            kind::WHEN => {
                Answer::When { estimate_ns: r.u64()?, reason: reason(&mut r)?, text: r.text()? }
            }
            kind::RESERVED => {
                Answer::Reserved { ticket: r.u64()?, bytes: r.u64()?, hold_ms: r.u32()? }
            }
            kind::STOCK => Answer::Available {
                ready: r.u64()?,
                largest: r.u64()?,
                making: r.u64()?,
                pace: r.u64()?,
                quota_left: r.u64()?,
            },
            kind::FILE => Answer::Report { bytes: r.u64()? },
            kind::DONE => Answer::Done,
            other => return Err(Malformed::Kind(other)),
        };
        r.end()?;
        Ok((tag, answer))
    }
}

#[cfg(test)]
mod tests;
