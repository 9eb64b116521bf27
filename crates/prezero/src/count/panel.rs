//! The panel: what a process shows of its zone, and the knobs that its owner may turn meanwhile.
//!
//! 16 KiB of shared memory that scrubd makes when it starts and looks at whenever it looks
//! around; no thread is woken for it, and no allocation knows of it. Tools of the same user find it
//! as the descriptor `memfd:prezero-panel` of the thread `scrubd`, under `/proc/PID/task/TID/fd`
//! ([`prezero_sys::panel::of_process`]). A process whose scrubd has not started has none: it
//! freed less than [`START_BYTES`](crate::internal::START_BYTES) in few blocks; nor has one whose scrubd has ended for a change of
//! rights or namespaces, until the next starts.
//!
//! Words of 8 bytes in the machine's byte order, each read and written whole; text is padded with NUL. [`Panel`] is the
//! layout. The first 16 words are the same in every version that begins with [`MAGIC`], and the names there say what
//! the values are. Whether a tool knows all the rest [`version`] says, a sum over names and kinds.
//!
//! A tool turns a knob by storing its word, and asks for something once by raising a count; then it raises `asked`.
//! scrubd carries all of it out and sets `answered`. Any word is a value, or is refused: scrubd puts back what it
//! keeps.
#![allow(unsafe_code)]

use std::fmt::{self, Write};
use std::sync::atomic::Ordering::{Relaxed, Release};
use std::sync::atomic::{AtomicU64, fence};

use prezero_sys::panel::{LEN, WORDS};

use crate::config::Config;
use crate::config::knobs::KNOBS;
use crate::config::value::{Text, word_of};
use crate::count::counters::{COUNT, Counter, Unit, Value};
use crate::count::snapshot::{FreeState, GAUGES, ORDERS, Snapshot};

/// In word 0: the panel is ready.
pub const MAGIC: u64 = u64::from_ne_bytes(*b"PREZERO2");
/// What is shown as text.
pub const FACTS: [&str; 6] =
    ["scrubd", "trust", "engine_cached", "engine_bypassing", "version", "stats"];
const VALUES: usize = COUNT + GAUGES + FreeState::ALL.len() * ORDERS;
/// How long a look at the values keeps them fresh, ns. scrubd believes no more.
pub const READER_NS: u64 = 5_000_000_000;

/// The layout.
#[repr(C)]
#[derive(Debug)]
pub struct Panel {
    /// [`MAGIC`]; 0 after that: its scrubd has ended.
    pub magic: AtomicU64,
    /// [`version`].
    pub version: AtomicU64,
    /// Number of the process.
    pub pid: AtomicU64,
    /// Odd while values and facts are being written.
    pub sequence: AtomicU64,
    /// When they were written, ns of `CLOCK_MONOTONIC`.
    pub published: AtomicU64,
    /// Until when a tool watches, ns of `CLOCK_MONOTONIC`; written by tools. Values are new each 0.1 s then, otherwise
    /// each second, and when scrubd goes to sleep.
    pub watched: AtomicU64,
    /// What tools ask for.
    pub requests: Requests,
    /// How many values there are, the byte at which their names begin, and nothing yet.
    pub contents: [AtomicU64; 6],
    /// Counters, gauges, and free blocks by order and state: integers, or IEEE doubles where the unit is `ns/page`.
    pub values: [AtomicU64; VALUES],
    /// In the order of [`KNOBS`].
    pub knobs: [AtomicU64; KNOBS.len()],
    /// In the order of [`FACTS`].
    pub facts: [[AtomicU64; 15]; FACTS.len()],
    /// Name and unit of each value with a space between them, and a NUL behind each.
    pub names: [AtomicU64; 640],
}

/// Words that tools raise.
#[repr(C)]
#[derive(Debug)]
pub struct Requests {
    /// Number of the last request.
    pub asked: AtomicU64,
    /// Number of the last that was carried out; written by scrubd.
    pub answered: AtomicU64,
    /// Nothing any more.
    pub reserved: AtomicU64,
    /// How often all idle memory was to go to the kernel.
    pub releases: AtomicU64,
}

const _: () = assert!(size_of::<Panel>() <= LEN);
/// Programs of any version find the values by these places.
const _: () = assert!(
    std::mem::offset_of!(Panel, contents) == 80 && std::mem::offset_of!(Panel, values) == 128
);

/// The same in two programs that know the same values, knobs and facts.
pub fn version() -> u64 {
    let mut sum = KNOBS.iter().fold(2, |sum, knob| word_of(knob.value, word_of(knob.name, sum)));
    each_value(&Snapshot::default(), |name, unit, _| {
        sum = word_of(unit.name(), word_of(name, sum))
    });
    FACTS.iter().fold(sum, |sum, fact| word_of(fact, sum))
}

/// Each value of a snapshot in the panel's order, with its name.
pub fn each_value(of: &Snapshot, mut each: impl FnMut(&str, Unit, Value)) {
    for &counter in Counter::ALL {
        let definition = counter.definition();
        each(definition.name, definition.unit, Value::Int(of.get(counter)));
    }
    of.gauges
        .scalars()
        .for_each(|(definition, value)| each(definition.name, definition.unit, value));
    for (order, blocks) in of.gauges.free.iter().enumerate() {
        for state in FreeState::ALL {
            let mut name = Text::<40>::empty();
            let _ = write!(name, "free_blocks_{}_{order}", state.name());
            each(name.as_str(), Unit::Count, Value::Int(blocks[state as usize]));
        }
    }
}

impl Panel {
    /// The panel in these words.
    pub fn of(words: &[AtomicU64; WORDS]) -> &Panel {
        // SAFETY: the layout is of such words alone, and of no more of them (asserted above); any word is a value.
        unsafe { &*std::ptr::from_ref(words).cast::<Panel>() }
    }

    /// Makes an empty one a panel that is ready but for its values.
    pub(crate) fn begin(&self, config: &Config) {
        self.pid.store(u64::from(prezero_sys::process::id()), Relaxed);
        self.version.store(version(), Relaxed);
        self.contents[0].store(VALUES as u64, Relaxed);
        self.contents[1].store(std::mem::offset_of!(Panel, names) as u64, Relaxed);
        let mut names = Cells { cells: &self.names, at: 0 };
        each_value(&Snapshot::default(), |name, unit, _| {
            let _ = write!(names, "{name} {}\0", unit.name());
        });
        self.knobs
            .iter()
            .zip(KNOBS)
            .for_each(|(word, knob)| word.store((knob.word)(config), Relaxed));
    }

    /// Writes values and facts, of `now`.
    pub(crate) fn publish(&self, snapshot: &Snapshot, facts: [&str; FACTS.len()], now: u64) {
        let sequence = self.sequence.load(Relaxed) | 1;
        self.sequence.store(sequence, Relaxed);
        // A tool that sees a new value sees the odd number too.
        fence(Release);
        let mut words = self.values.iter();
        each_value(snapshot, |_, _, value| {
            if let Some(word) = words.next() {
                word.store(value.bits(), Relaxed);
            }
        });
        for (cells, fact) in self.facts.iter().zip(facts) {
            cells.iter().for_each(|cell| cell.store(0, Relaxed));
            let _ = Cells { cells, at: 0 }.write_str(fact);
        }
        self.published.store(now, Relaxed);
        self.sequence.store(sequence.wrapping_add(1), Release);
        self.magic.store(MAGIC, Release);
    }
}

/// Text in words that are zero. What does not fit is cut.
struct Cells<'a> {
    cells: &'a [AtomicU64],
    at: usize,
}

impl fmt::Write for Cells<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for &byte in text.as_bytes() {
            let cell = self.cells.get(self.at / 8).ok_or(fmt::Error)?;
            let mut bytes = cell.load(Relaxed).to_ne_bytes();
            bytes[self.at % 8] = byte;
            cell.store(u64::from_ne_bytes(bytes), Relaxed);
            self.at += 1;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Machine;

    fn text(cells: &[AtomicU64]) -> String {
        let bytes: Vec<u8> = cells.iter().flat_map(|it| it.load(Relaxed).to_ne_bytes()).collect();
        String::from_utf8(bytes).unwrap()
    }

    #[test]
    fn names_say_what_the_values_are_and_facts_are_cut() {
        let words = Box::new([const { AtomicU64::new(0) }; WORDS]);
        let panel = Panel::of(&words);
        let machine = Machine { memory: 1 << 30, engine: |_| None, reports_free: false };
        panel.begin(&Config::new(&machine));
        let mut snapshot = Snapshot::default();
        snapshot.counters[Counter::Hits as usize] = 7;
        snapshot.gauges.clear_ns_per_page = 40.5;
        let long = "x".repeat(200);
        panel.publish(&snapshot, ["resting", &long, "", "", "", ""], 3);
        panel.publish(&snapshot, ["off", &long, "", "", "", ""], 3);

        let names = text(&panel.names);
        let names: Vec<&str> =
            names.split_terminator('\0').take_while(|it| !it.is_empty()).collect();
        assert_eq!(names.len(), VALUES);
        let value = |name| {
            let at = names.iter().position(|each| *each == name).unwrap();
            panel.values[at].load(Relaxed)
        };
        assert_eq!(value("hits count"), 7);
        assert_eq!(f64::from_bits(value("clear_ns_per_page ns/page")), 40.5);
        assert_eq!(value("free_blocks_mixed_18 count"), 0);
        let facts = [&panel.facts[0][..], &panel.facts[1][..]].map(text);
        assert_eq!((facts[0].trim_end_matches('\0'), facts[1].as_str()), ("off", &long[..120]));
    }
}
