//! The values of knobs: each type reads itself, shows itself, and is a word of 8 bytes.
//!
//! Parsing uses no heap and never panics; an error is the mend, for its caller to put
//! behind the name and the value. Sizes are of [`prezero_host`].

use core::fmt::{self, Display, Write};
use core::time::Duration;

use prezero_host::sizes::{Size, size, time};
use prezero_sys::meta;

use crate::config::ablation::Ablation;
use crate::config::{EngineChoice, MAX_PATH, Machine, NoMoveMode, OnFree, StatsSink, Verify};
use crate::units::{MAX_ORDER, Order};

/// The longest time: thirty years, "not while I live".
const MAX_TIME: Duration = Duration::from_secs(1_000_000_000);

/// A type of value that knobs have.
pub(crate) trait Setting: Copy + 'static {
    const KIND: Kind<Self>;
}

/// What is done with values of one type. Where it takes two texts the second is how the knob's row says that values are
/// written.
pub(crate) struct Kind<T> {
    pub(crate) read: fn(&str, &str, &Machine) -> Result<T, &'static str>,
    pub(crate) show: fn(&T, &str, &mut fmt::Formatter<'_>) -> fmt::Result,
    pub(crate) word: fn(&T) -> u64,
    /// The value of a word, or the one next to it: any word is a value.
    pub(crate) of: fn(u64) -> T,
}

impl Setting for Order {
    const KIND: Kind<Order> = Kind {
        read: |text, _, _| {
            let number = text.parse().ok().filter(|_| !text.starts_with('+'));
            number.and_then(Order::new).ok_or("not an order; give 0 (4K) to 18 (1G)")
        },
        show: |order, _, f| order.fmt(f),
        word: |order| order.get().into(),
        of: |word| u32::try_from(word).ok().and_then(Order::new).unwrap_or(MAX_ORDER),
    };
}

/// Bytes.
impl Setting for usize {
    const KIND: Kind<usize> = Kind {
        read: |text, _, _| size(text),
        show: |bytes, _, f| Size(*bytes).fmt(f),
        word: |bytes| *bytes as u64,
        of: |word| word as usize,
    };
}

/// Seconds, as a word nanoseconds.
impl Setting for Duration {
    const KIND: Kind<Duration> = Kind {
        read: |text, _, _| {
            let time = time(text).ok_or("not a time; give 10, 500ms or 2m")?;
            (time <= MAX_TIME).then_some(time).ok_or("too long; give 1000000000 seconds or less")
        },
        show: |time, _, f| {
            write!(f, "{}", time.as_secs())?;
            let (mut part, mut digits) = (time.subsec_nanos(), 9);
            if part == 0 {
                return Ok(());
            }
            while part.is_multiple_of(10) {
                (part, digits) = (part / 10, digits - 1);
            }
            write!(f, ".{part:0digits$}")
        },
        word: |time| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX),
        of: |word| Duration::from_nanos(word).min(MAX_TIME),
    };
}

/// A value, or the last word of its row.
impl<T: Setting> Setting for Option<T> {
    const KIND: Kind<Option<T>> = Kind {
        read: |text, words, machine| match words.rsplit('|').next() {
            Some(absent) if absent == text => Ok(None),
            _ => (T::KIND.read)(text, words, machine).map(Some),
        },
        show: |value, words, f| match value {
            Some(value) => (T::KIND.show)(value, words, f),
            None => f.write_str(words.rsplit('|').next().unwrap_or_default()),
        },
        word: |value| value.as_ref().map_or(u64::MAX, T::KIND.word),
        of: |word| (word != u64::MAX).then(|| (T::KIND.of)(word)),
    };
}

/// A value that is one of its row's words.
trait OneOf: Copy + PartialEq + 'static {
    /// In the order of the words; a number that is beyond them stands for the last.
    const ALL: &'static [Self];
    const MEND: &'static str;
}

impl OneOf for bool {
    const ALL: &'static [bool] = &[true, false];
    const MEND: &'static str = "neither; give on or off";
}

impl OneOf for OnFree {
    const ALL: &'static [OnFree] = &[OnFree::Clear, OnFree::Keep];
    const MEND: &'static str = bool::MEND;
}

impl OneOf for Verify {
    const ALL: &'static [Verify] = &[Verify::Off, Verify::Sample, Verify::Full];
    const MEND: &'static str = "no such mode; give off, sample or full";
}

impl OneOf for NoMoveMode {
    const ALL: &'static [NoMoveMode] = &[NoMoveMode::Auto, NoMoveMode::On, NoMoveMode::Off];
    const MEND: &'static str = "no such mode; give auto, on or off";
}

impl<T: OneOf> Setting for T {
    const KIND: Kind<T> = Kind {
        read: |text, words, _| {
            let nth = words.split('|').position(|word| word == text);
            nth.map(|nth| T::ALL[nth]).ok_or(T::MEND)
        },
        show: |value, words, f| {
            let nth = (T::KIND.word)(value) as usize;
            f.write_str(words.split('|').nth(nth).unwrap_or_default())
        },
        word: |value| T::ALL.iter().position(|each| each == value).unwrap_or_default() as u64,
        of: |word| T::ALL[(word as usize).min(T::ALL.len() - 1)],
    };
}

/// As a word its name's: an engine that this process does not know is none.
impl Setting for EngineChoice {
    const KIND: Kind<EngineChoice> = Kind {
        read: |text, _, machine| match (machine.engine)(text) {
            _ if text == "auto" => Ok(EngineChoice::Auto),
            Some(name) => Ok(EngineChoice::Named(name)),
            None => Err(
                "no such clear engine on this machine; give auto, or one that `prezero engines` lists",
            ),
        },
        show: |engine, _, f| f.write_str(engine.name().unwrap_or("auto")),
        word: |engine| engine.name().map_or(0, |name| word_of(name, 0)),
        of: |word| {
            let mut names = crate::clear::engines().map(|engine| engine.name());
            let found = names.find(|name| word_of(name, 0) == word);
            found.map_or(EngineChoice::Auto, EngineChoice::Named)
        },
    };
}

/// A word for a text and for what went before it (FNV-1a).
pub(crate) const fn word_of(text: &str, before: u64) -> u64 {
    let (bytes, mut word, mut at) = (text.as_bytes(), before ^ 0xcbf2_9ce4_8422_2325, 0);
    while at < bytes.len() {
        word = (word ^ bytes[at] as u64).wrapping_mul(0x100_0000_01b3);
        at += 1;
    }
    word
}

/// Where statistics go that is no file.
const NO_FILES: [(&str, StatsSink); 3] =
    [("summary", StatsSink::Summary), ("off", StatsSink::Off), ("-", StatsSink::Stderr)];

/// As a word a file is a file, whichever.
impl Setting for StatsSink {
    const KIND: Kind<StatsSink> = Kind {
        read: |text, _, _| match NO_FILES.iter().find(|(word, _)| *word == text) {
            Some((_, sink)) => Ok(*sink),
            None if text.len() > MAX_PATH => {
                Err("the path is too long; give one of 1023 bytes or less")
            }
            None => meta::keep(text).map(StatsSink::File).map_err(|_| "no memory to keep it"),
        },
        show: |sink, _, f| match sink {
            StatsSink::File(path) => f.write_str(path),
            sink => f.write_str(NO_FILES[(Self::KIND.word)(sink) as usize].0),
        },
        word: |sink| {
            let nth = NO_FILES.iter().position(|(_, each)| each == sink);
            nth.unwrap_or(NO_FILES.len()) as u64
        },
        of: |word| NO_FILES.get(word as usize).map_or(StatsSink::Summary, |(_, sink)| *sink),
    };
}

impl Setting for Ablation {
    const KIND: Kind<Ablation> = Kind {
        read: |text, _, _| Ablation::read(text),
        show: |without, _, f| without.fmt(f),
        word: |without| without.0,
        of: Ablation,
    };
}

/// A string of at most `N` bytes that lies where it is, not on a heap.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Text<const N: usize> {
    len: usize,
    bytes: [u8; N],
}

impl<const N: usize> Text<N> {
    /// As many whole characters of `text` as fit.
    pub fn head(text: &str) -> Self {
        let mut head = Text::empty();
        let _ = head.write_str(text);
        head
    }

    /// Nothing yet.
    pub fn empty() -> Self {
        Text { len: 0, bytes: [0; N] }
    }

    /// The string.
    pub fn as_str(&self) -> &str {
        core::str::from_utf8(&self.bytes[..self.len]).unwrap_or("")
    }
}

impl<const N: usize> Write for Text<N> {
    /// As many whole characters as there is room for.
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let room = N - self.len;
        let end = (0..=room.min(text.len())).rev().find(|&end| text.is_char_boundary(end));
        let more = &text[..end.unwrap_or(0)];
        self.bytes[self.len..self.len + more.len()].copy_from_slice(more.as_bytes());
        self.len += more.len();
        if more.len() == text.len() { Ok(()) } else { Err(fmt::Error) }
    }
}

impl<const N: usize> Display for Text<N> {
    /// On one line: control characters are escaped.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_str().escape_debug().fmt(f)
    }
}

impl<const N: usize> fmt::Debug for Text<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_str(), f)
    }
}
