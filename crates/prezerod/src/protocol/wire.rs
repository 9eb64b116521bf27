//! Frames as bytes: what `PROTOCOL.md` says. One table of frames serves writing and reading.

use super::{
    Answer, Available, Backing, Charged, Drain, Granted, MAGIC, MAX_NAME, MAX_PART, MAX_TEXT,
    Malformed, Name, NamedLease, Page, Reason, Report, Request, Since, VERSION, Want,
};

/// Kinds whose text has a bound of its own.
const LEASE_NAMED: u8 = 8;
const PART: u8 = 136;
const NAMED: u8 = 137;
/// Longest path of a named lease: longer ones are cut, and the client finds the name elsewhere.
const MAX_PATH: usize = 400;
/// A node of -1 stands for any.
const ANY_NODE: i32 = -1;

/// The longest text of a frame of that kind. It ends the frame.
fn most_text(kind: u8) -> usize {
    match kind {
        LEASE_NAMED => MAX_NAME,
        PART => MAX_PART,
        NAMED => MAX_PATH,
        _ => MAX_TEXT,
    }
}

/// A field of frames.
trait Field: Sized {
    fn write(&self, to: &mut Writer);
    fn read(from: &mut Reader<'_>) -> Result<Self, Malformed>;
}

struct Writer {
    bytes: Vec<u8>,
    most_text: usize,
}

impl Writer {
    fn open(kind: u8, tag: u32) -> Writer {
        let [p, z] = MAGIC;
        let mut frame = Writer { bytes: vec![p, z, VERSION, kind], most_text: most_text(kind) };
        tag.write(&mut frame);
        frame
    }
}

struct Reader<'a> {
    rest: &'a [u8],
    whole: usize,
    most_text: usize,
}

impl<'a> Reader<'a> {
    fn take<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let (head, rest) = self.rest.split_first_chunk().ok_or(Malformed::Length(self.whole))?;
        self.rest = rest;
        Ok(*head)
    }

    /// Reads the header: the kind and the tag.
    fn open(frame: &'a [u8]) -> Result<(Reader<'a>, u8, u32), Malformed> {
        let mut reader = Reader { rest: frame, whole: frame.len(), most_text: 0 };
        let [p, z, version, kind] = reader.take()?;
        if [p, z] != MAGIC {
            return Err(Malformed::Magic);
        }
        if version != VERSION {
            return Err(Malformed::Version(version));
        }
        reader.most_text = most_text(kind);
        let tag = u32::read(&mut reader)?;
        Ok((reader, kind, tag))
    }
}

macro_rules! integers {
    ($($type:ident)*) => {$(
        impl Field for $type {
            fn write(&self, to: &mut Writer) {
                to.bytes.extend(self.to_le_bytes());
            }

            fn read(from: &mut Reader<'_>) -> Result<$type, Malformed> {
                from.take().map($type::from_le_bytes)
            }
        }
    )*};
}

integers! { u32 u64 i32 }

/// Words that are numbers.
macro_rules! words {
    ($($type:ident $unknown:literal: $($word:ident)*;)*) => {$(
        impl Field for $type {
            fn write(&self, to: &mut Writer) {
                (*self as u32).write(to);
            }

            fn read(from: &mut Reader<'_>) -> Result<$type, Malformed> {
                $type::try_from(u32::read(from)?).map_err(Malformed::Field)
            }
        }

        impl From<$type> for u32 {
            fn from(word: $type) -> u32 {
                word as u32
            }
        }

        impl TryFrom<u32> for $type {
            type Error = &'static str;

            fn try_from(number: u32) -> Result<$type, &'static str> {
                let known = [$($type::$word),*].into_iter().find(|word| *word as u32 == number);
                known.ok_or($unknown)
            }
        }
    )*};
}

/// Those that have names in reports and metrics, too.
macro_rules! names {
    ($($type:ident $unknown:literal: $($word:ident $name:literal)*;)*) => {$(
        words! { $type $unknown: $($word)*; }

        impl $type {
            /// All, in the order of their numbers.
            pub const ALL: [$type; [$($name),*].len()] = [$($type::$word),*];

            /// Its name in reports and metrics.
            pub fn name(self) -> &'static str {
                match self {
                    $($type::$word => $name,)*
                }
            }
        }
    )*};
}

words! {
    Charged "charged to nobody that is known": Broker Tenant;
    Drain "a drain is neither on nor off": Off On;
    Report "no such report": Stock Metrics Log;
    Since "named neither now nor before": Now Before;
}

names! {
    Backing "no such backing": Hugetlb "hugetlb" Thp "thp" Tmpfs "tmpfs";
    Reason "no such reason":
        Malformed "malformed" Size "size" Node "node" Host "host" Denied "denied" Quota "quota" Busy "busy"
        Empty "empty" Pressure "pressure" Audit "audit" Kernel "kernel" Drained "drained";
}

impl Field for Page {
    fn write(&self, to: &mut Writer) {
        self.bytes().write(to);
    }

    fn read(from: &mut Reader<'_>) -> Result<Page, Malformed> {
        Page::try_from(u64::read(from)?).map_err(Malformed::Field)
    }
}

/// A node, or any.
impl Field for Option<u16> {
    fn write(&self, to: &mut Writer) {
        self.map_or(ANY_NODE, i32::from).write(to);
    }

    fn read(from: &mut Reader<'_>) -> Result<Option<u16>, Malformed> {
        let wrong = |_| Malformed::Field("the node is neither -1 nor a node");
        match i32::read(from)? {
            ANY_NODE => Ok(None),
            node => u16::try_from(node).map(Some).map_err(wrong),
        }
    }
}

/// The node that a lease lies on.
impl Field for u16 {
    fn write(&self, to: &mut Writer) {
        Some(*self).write(to);
    }

    fn read(from: &mut Reader<'_>) -> Result<u16, Malformed> {
        Option::read(from)?.ok_or(Malformed::Field("a lease lies on a node"))
    }
}

/// A text, cut to what the frame may have.
impl Field for String {
    fn write(&self, to: &mut Writer) {
        let ends = (0..=to.most_text.min(self.len())).rev();
        let end = ends.into_iter().find(|&end| self.is_char_boundary(end)).unwrap_or(0);
        (end as u32).write(to);
        to.bytes.extend(&self.as_bytes()[..end]);
    }

    fn read(from: &mut Reader<'_>) -> Result<String, Malformed> {
        let len = u32::read(from)? as usize;
        if len != from.rest.len() || len > from.most_text {
            return Err(Malformed::Length(from.whole));
        }
        let text = std::str::from_utf8(std::mem::take(&mut from.rest));
        text.map(str::to_owned).map_err(|_| Malformed::Field("the text is not UTF-8"))
    }
}

impl Field for Name {
    fn write(&self, to: &mut Writer) {
        self.as_str().to_owned().write(to);
    }

    fn read(from: &mut Reader<'_>) -> Result<Name, Malformed> {
        let none = "the name is not of letters, digits, -, _ and .";
        Name::new(&String::read(from)?).ok_or(Malformed::Field(none))
    }
}

/// Fields of a frame that stand together, in the order of their bytes.
macro_rules! groups {
    ($($type:ident { $($field:ident),* })*) => {$(
        impl Field for $type {
            fn write(&self, to: &mut Writer) {
                $(self.$field.write(to);)*
            }

            fn read(from: &mut Reader<'_>) -> Result<$type, Malformed> {
                $(let $field = Field::read(from)?;)*
                Ok($type { $($field),* })
            }
        }
    )*};
}

groups! {
    Want { bytes, page, node }
    Available { ready, largest, making, pace, quota_left }
    Granted { lease, bytes, page, node, backing, inode, age_ns, cost_ns, waited_ns, charged }
    NamedLease { bytes, page, backing, inode, age_ns, waited_ns, since }
}

/// Frames: their kind, and their fields in the order of their bytes.
macro_rules! frames {
    ($type:ident { $($kind:literal $frame:ident $fields:tt)* }) => {
        impl $type {
            /// Its frame. Text that is too long is cut.
            pub fn encode(&self, tag: u32) -> Vec<u8> {
                match self {
                    $($type::$frame $fields => frames!(@write $kind tag $fields),)*
                }
            }

            /// Reads a frame: the tag, and what it says.
            ///
            /// # Errors
            /// What is wrong with it.
            pub fn decode(frame: &[u8]) -> Result<(u32, $type), Malformed> {
                let (mut from, kind, tag) = Reader::open(frame)?;
                let read = match kind {
                    $($kind => {
                        frames!(@read from $fields);
                        $type::$frame $fields
                    })*
                    other => return Err(Malformed::Kind(other)),
                };
                if !from.rest.is_empty() {
                    return Err(Malformed::Length(from.whole));
                }
                Ok((tag, read))
            }
        }
    };
    (@write $kind:literal $tag:ident { $($field:ident),* }) => { frames!(@write $kind $tag ($($field),*)) };
    (@write $kind:literal $tag:ident ($($field:ident),*)) => {{
        #[allow(unused_mut)]
        let mut to = Writer::open($kind, $tag);
        $($field.write(&mut to);)*
        to.bytes
    }};
    (@read $from:ident { $($field:ident),* }) => { frames!(@read $from ($($field),*)) };
    (@read $from:ident ($($field:ident),*)) => { $(let $field = Field::read(&mut $from)?;)* };
}

frames! { Request {
    1 Lease { want, wait_ms }
    5 Available { page, node }
    7 Report { report, from }
    8 LeaseNamed { want, wait_ms, name }
    9 Yield { bytes, page }
    10 Drain(drain)
    11 LeaseOrPlain { want, wait_ms }
    12 Expect { want, seconds, pieces }
} }

frames! { Answer {
    129 Lease(granted)
    130 No(reason, text)
    131 When { estimate_ns, reason, text }
    133 Available(available)
    135 Done {}
    136 Part { next, text }
    137 Named { lease, path }
} }
