//! Frames as bytes: what `PROTOCOL.md` says, once for writing and once for reading.

use super::{
    Answer, Backing, Charged, Drain, Granted, MAGIC, MAX_NAME, MAX_PART, MAX_TEXT, Malformed, Name,
    NamedLease, Page, Reason, Report, Request, Since, VERSION, Want,
};

mod kind {
    pub const LEASE: u8 = 1;
    pub const RESERVE: u8 = 2;
    pub const REDEEM: u8 = 3;
    pub const CANCEL: u8 = 4;
    pub const AVAILABLE: u8 = 5;
    /// Of earlier brokers, which sent a descriptor: an unread descriptor counts against
    /// the sender. So did its answer, 134.
    pub const REPORT_AS_FILE: u8 = 6;
    pub const REPORT: u8 = 7;
    pub const LEASE_NAMED: u8 = 8;
    pub const YIELD: u8 = 9;
    pub const DRAIN: u8 = 10;
    pub const LEASE_OR_PLAIN: u8 = 11;
    pub const EXPECT: u8 = 12;
    pub const GRANTED: u8 = 129;
    pub const NO: u8 = 130;
    pub const WHEN: u8 = 131;
    pub const RESERVED: u8 = 132;
    pub const STOCK: u8 = 133;
    pub const DONE: u8 = 135;
    pub const PART: u8 = 136;
    pub const NAMED: u8 = 137;
}

/// Longest path of a named lease: longer ones are cut, and the client finds the name elsewhere.
const MAX_PATH: usize = 400;
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

    fn text(&mut self, most: usize) -> Result<String, Malformed> {
        let len = self.u32()? as usize;
        if len != self.rest.len() || len > most {
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

    /// The text, cut to what it may have.
    fn text(self, text: &str, most: usize) -> Writer {
        let end = (0..=most.min(text.len())).rev().find(|&end| text.is_char_boundary(end));
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
            Request::LeaseOrPlain { want, wait_ms } => wanted(kind::LEASE_OR_PLAIN, want, *wait_ms),
            Request::Reserve { want, hold_ms } => wanted(kind::RESERVE, want, *hold_ms),
            Request::LeaseNamed { want, wait_ms, name } => {
                wanted(kind::LEASE_NAMED, want, *wait_ms).text(name.as_str(), MAX_NAME)
            }
            Request::Redeem { ticket } => Writer::new(kind::REDEEM, tag).u64(*ticket),
            Request::Cancel { ticket } => Writer::new(kind::CANCEL, tag).u64(*ticket),
            Request::Available { page, node } => {
                Writer::new(kind::AVAILABLE, tag).u64(page.bytes()).node(*node)
            }
            Request::Report { report, from } => {
                let which = match report {
                    Report::Stock => 1,
                    Report::Metrics => 2,
                };
                Writer::new(kind::REPORT, tag).u32(which).u64(*from)
            }
            Request::Yield { page, bytes } => {
                Writer::new(kind::YIELD, tag).u64(*bytes).u64(page.bytes())
            }
            Request::Expect { want, seconds, pieces } => {
                wanted(kind::EXPECT, want, *seconds).u32(*pieces)
            }
            Request::Drain(drain) => Writer::new(kind::DRAIN, tag).u32(*drain as u32),
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
            kind::LEASE_OR_PLAIN => {
                Request::LeaseOrPlain { want: want(&mut r)?, wait_ms: r.u32()? }
            }
            kind::LEASE_NAMED => {
                let (want, wait_ms) = (want(&mut r)?, r.u32()?);
                let name = Name::new(&r.text(MAX_NAME)?);
                let none = "the name is not of letters, digits, -, _ and .";
                Request::LeaseNamed { want, wait_ms, name: name.ok_or(Malformed::Field(none))? }
            }
            kind::RESERVE => Request::Reserve { want: want(&mut r)?, hold_ms: r.u32()? },
            kind::REDEEM => Request::Redeem { ticket: r.u64()? },
            kind::CANCEL => Request::Cancel { ticket: r.u64()? },
            kind::AVAILABLE => Request::Available { page: r.page()?, node: r.node()? },
            kind::REPORT_AS_FILE => return Err(Malformed::Retired),
            kind::REPORT => {
                let report = match r.u32()? {
                    1 => Report::Stock,
                    2 => Report::Metrics,
                    _ => return Err(Malformed::Field("no such report")),
                };
                Request::Report { report, from: r.u64()? }
            }
            kind::YIELD => {
                let bytes = r.u64()?;
                Request::Yield { page: r.page()?, bytes }
            }
            kind::EXPECT => {
                Request::Expect { want: want(&mut r)?, seconds: r.u32()?, pieces: r.u32()? }
            }
            kind::DRAIN => Request::Drain(match r.u32()? {
                0 => Drain::Off,
                1 => Drain::On,
                _ => return Err(Malformed::Field("a drain is neither on nor off")),
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
                .u64(g.waited_ns)
                .u32(g.charged as u32),
            Answer::Named { lease: p, path } => Writer::new(kind::NAMED, tag)
                .u64(p.bytes)
                .u64(p.page.bytes())
                .u32(p.backing as u32)
                .u64(p.inode)
                .u64(p.age_ns)
                .u64(p.waited_ns)
                .u32(p.since as u32)
                .text(path, MAX_PATH),
            Answer::No(reason, text) => {
                Writer::new(kind::NO, tag).u32(*reason as u32).text(text, MAX_TEXT)
            }
            Answer::When { estimate_ns, reason, text } => {
                let frame = Writer::new(kind::WHEN, tag).u64(*estimate_ns).u32(*reason as u32);
                frame.text(text, MAX_TEXT)
            }
            Answer::Reserved { ticket, bytes, hold_ms } => {
                Writer::new(kind::RESERVED, tag).u64(*ticket).u64(*bytes).u32(*hold_ms)
            }
            Answer::Available { ready, largest, making, pace, quota_left } => {
                let frame = Writer::new(kind::STOCK, tag).u64(*ready).u64(*largest);
                frame.u64(*making).u64(*pace).u64(*quota_left)
            }
            Answer::Part { next, text } => {
                Writer::new(kind::PART, tag).u64(*next).text(text, MAX_PART)
            }
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
                charged: match r.u32()? {
                    1 => Charged::Broker,
                    2 => Charged::Tenant,
                    _ => return Err(Malformed::Field("charged to nobody that is known")),
                },
            }),
            kind::NAMED => Answer::Named {
                lease: NamedLease {
                    bytes: r.u64()?,
                    page: r.page()?,
                    backing: Backing::from_wire(r.u32()?)
                        .ok_or(Malformed::Field("no such backing"))?,
                    inode: r.u64()?,
                    age_ns: r.u64()?,
                    waited_ns: r.u64()?,
                    since: match r.u32()? {
                        0 => Since::Now,
                        1 => Since::Before,
                        _ => return Err(Malformed::Field("named neither now nor before")),
                    },
                },
                path: r.text(MAX_PATH)?,
            },
            kind::NO => Answer::No(reason(&mut r)?, r.text(MAX_TEXT)?),
            kind::WHEN => {
                let (estimate_ns, reason) = (r.u64()?, reason(&mut r)?);
                Answer::When { estimate_ns, reason, text: r.text(MAX_TEXT)? }
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
            kind::PART => Answer::Part { next: r.u64()?, text: r.text(MAX_PART)? },
            kind::DONE => Answer::Done,
            other => return Err(Malformed::Kind(other)),
        };
        r.end()?;
        Ok((tag, answer))
    }
}
