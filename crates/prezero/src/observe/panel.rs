//! The panel: what a process shows of its zone, and what its owner may ask of it.
//!
//! 16 KiB of shared memory that scrubd makes when it starts and looks at whenever it looks
//! around; no thread is woken for it, and no allocation knows of it. Tools of the same user find it
//! as the descriptor `memfd:prezero-panel` of the thread `scrubd`, under `/proc/PID/task/TID/fd`
//! ([`prezero_sys::panel::of_process`]). A process whose scrubd has not started has none: it
//! freed less than [`START_BYTES`](crate::internal::START_BYTES) in few blocks; nor has one whose scrubd has ended for a change of
//! rights or namespaces, until the next starts.
//!
//! # Layout, version 1
//!
//! Words of 8 bytes in the machine's byte order, each read and written whole. Text is padded
//! with NUL. A version adds words only where none are now. Names are those of the statistics and of
//! the knobs, and a reader goes by names.
//!
//! | word | holds |
//! |---|---|
//! | 0 | `PREZERO` and a NUL: the panel is ready; 0 after that: its scrubd has ended |
//! | 1 | 1, the version |
//! | 2 | process number |
//! | 3 | odd while values and texts are being written |
//! | 4 | when they were written, ns of `CLOCK_MONOTONIC` |
//! | 5 | until when a tool watches, ns of `CLOCK_MONOTONIC`; written by tools. Values are new each 0.1 s then, otherwise each second, and when scrubd goes to sleep |
//! | 6, 7 | how many values and texts there are |
//! | 8 | number of the last request; written by tools, by one that holds `flock(LOCK_EX)` on the panel until it has its answer |
//! | 9 | number of the last request that was answered |
//! | 16 to 31 | the request: `set KEY VALUE`, `drain`, `release`; or several, each ended by `;` |
//! | 32 to 63 | the answer to the last of them: nothing, or what is wrong with it |
//! | 64 on | values, 8 words each: name (5), unit (1), number (1), 0 if it is an integer and 1 if an IEEE double (1) |
//! | behind | texts, 20 words each: name (4), 1 for a knob and 0 for a fact (1), value (15) |
//!
//! A tool that finds requests without an answer puts its own behind them. scrubd may begin to read
//! meanwhile. It leaves a request without an end alone, then finds that the number has changed, and
//! carries out all of them. A second time changes nothing.

use std::ops::Deref;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicU64, fence};
use std::time::{Duration, Instant};

use prezero_sys::escape::escape;
use prezero_sys::panel::{Mapped, WORDS};
use prezero_sys::thread;

use crate::count::counters::Value;

pub(crate) const MAGIC: u64 = u64::from_ne_bytes(*b"PREZERO\0");
pub(crate) const VERSION: u64 = 1;
pub(crate) const MAGIC_AT: usize = 0;
pub(crate) const VERSION_AT: usize = 1;
pub(crate) const PID_AT: usize = 2;
pub(crate) const SEQUENCE: usize = 3;
pub(crate) const PUBLISHED: usize = 4;
pub(crate) const WATCHED: usize = 5;
pub(crate) const VALUES: usize = 6;
pub(crate) const TEXTS: usize = 7;
pub(crate) const ASKED: usize = 8;
pub(crate) const ANSWERED: usize = 9;
pub(crate) const REQUEST: std::ops::Range<usize> = 16..32;
pub(crate) const ANSWER: std::ops::Range<usize> = 32..64;
pub(crate) const RECORDS: usize = 64;
pub(crate) const VALUE_WORDS: usize = 8;
pub(crate) const TEXT_WORDS: usize = 20;
/// Words of a value's name, and where its unit, number and kind lie.
pub(crate) const VALUE_NAME: usize = 5;
/// Words of a text's name; its kind comes next, its value last.
pub(crate) const TEXT_NAME: usize = 4;

/// How long a look at the values keeps them fresh, ns. scrubd believes no more.
pub(crate) const READER_NS: u64 = 5_000_000_000;
/// How long a reader waits for scrubd to be done writing: it may have lost its CPU.
const PATIENCE: Duration = Duration::from_millis(50);
const POLL: Duration = Duration::from_millis(2);
/// Tools that wait for an answer before this one has its turn.
const TOOLS: u32 = 4;
/// Ends a request where there are several.
pub(crate) const END: char = ';';

/// What a panel showed.
#[derive(Clone, PartialEq, Debug)]
pub struct Reading {
    /// Of the process.
    pub pid: u32,
    /// How old the values are.
    pub age: Duration,
    /// Whether all values are of one moment: not so if scrubd was kept from its CPU while it
    /// wrote them.
    pub consistent: bool,
    /// Counters and gauges: name, unit, number.
    pub values: Vec<(String, String, Value)>,
    /// The knobs as they are set.
    pub knobs: Vec<(String, String)>,
    /// What else is known: engines, what scrubd is about.
    pub facts: Vec<(String, String)>,
}

impl Reading {
    /// A number by name; 0 if there is none.
    pub fn number(&self, name: &str) -> f64 {
        let found = self.values.iter().find(|(each, ..)| each == name);
        found.map_or(0.0, |(.., number)| number.as_f64())
    }

    /// A fact by name; empty if there is none.
    pub fn fact(&self, name: &str) -> &str {
        let found = self.facts.iter().find(|(each, _)| each == name);
        found.map_or("", |(_, fact)| fact)
    }
}

/// Why a request was not carried out.
#[derive(Debug, thiserror::Error)]
pub enum Refusal {
    /// The process says why.
    #[error("{0}")]
    Answer(String),
    /// scrubd sleeps or has no CPU. It will read the request before it does anything else.
    #[error(
        "not yet: scrubd sleeps or has no CPU; when the program frees memory it will be done before anything else"
    )]
    Pending,
    /// Other requests have not been answered, and there is no room for more.
    #[error("earlier requests have not been answered yet: {0}")]
    Busy(String),
    /// It does not fit.
    #[error("too long a request; give less than {} bytes", REQUEST.len() * 8)]
    Long,
}

/// The panel of a process.
pub struct Panel<W: Deref<Target = [AtomicU64; WORDS]> = Mapped>(W);

impl<W: Deref<Target = [AtomicU64; WORDS]>> std::fmt::Debug for Panel<W> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Panel").field(&self.0[PID_AT].load(Relaxed)).finish()
    }
}

impl<W: Deref<Target = [AtomicU64; WORDS]>> Panel<W> {
    /// The panel in words that [`prezero_sys::panel`] found. `None` if it is of another version, or
    /// not ready.
    pub fn new(words: W) -> Option<Panel<W>> {
        let ready = words[MAGIC_AT].load(Acquire) == MAGIC;
        (ready && words[VERSION_AT].load(Relaxed) == VERSION).then_some(Panel(words))
    }

    /// Whether its scrubd has ended: the values stay as they are, and a process that goes on may
    /// have another panel.
    pub fn is_over(&self) -> bool {
        self.0[MAGIC_AT].load(Acquire) != MAGIC
    }

    /// Says that a tool watches, and reads everything.
    pub fn read(&self) -> Reading {
        let words = &*self.0;
        let now = thread::monotonic_ns();
        words[WATCHED].fetch_max(now + READER_NS, Relaxed);
        let since = Instant::now();
        loop {
            let before = words[SEQUENCE].load(Acquire);
            let reading = self.look(now);
            fence(Acquire);
            let settled = before.is_multiple_of(2) && words[SEQUENCE].load(Relaxed) == before;
            if settled || since.elapsed() > PATIENCE {
                return Reading { consistent: settled, ..reading };
            }
            std::thread::sleep(POLL);
        }
    }

    fn look(&self, now: u64) -> Reading {
        let words = &*self.0;
        let number = |at: usize| words[at].load(Relaxed);
        let (mut values, mut knobs, mut facts) = (vec![], vec![], vec![]);
        // Whatever they say, no more than there is room for.
        let room = (WORDS - RECORDS) / VALUE_WORDS;
        let count = (number(VALUES) as usize).min(room);
        let texts_at = RECORDS + count * VALUE_WORDS;
        let texts = (number(TEXTS) as usize).min((WORDS - texts_at) / TEXT_WORDS);
        for at in (0..count).map(|nth| RECORDS + nth * VALUE_WORDS) {
            let name = text(&words[at..at + VALUE_NAME]);
            let unit = text(&words[at + VALUE_NAME..at + VALUE_NAME + 1]);
            let bits = number(at + VALUE_NAME + 1);
            let whole = number(at + VALUE_NAME + 2) == 0;
            let value = if whole { Value::Int(bits) } else { Value::Float(f64::from_bits(bits)) };
            values.push((name, unit, value));
        }
        for at in (0..texts).map(|nth| texts_at + nth * TEXT_WORDS) {
            let name = text(&words[at..at + TEXT_NAME]);
            let value = text(&words[at + TEXT_NAME + 1..at + TEXT_WORDS]);
            let list = if number(at + TEXT_NAME) == 1 { &mut knobs } else { &mut facts };
            list.push((name, value));
        }
        Reading {
            pid: number(PID_AT) as u32,
            age: Duration::from_nanos(now.saturating_sub(number(PUBLISHED))),
            consistent: true,
            values,
            knobs,
            facts,
        }
    }

    /// Asks, while no other tool may, and waits for the answer.
    fn exchange(&self, request: &str, since: Instant, patience: Duration) -> Result<(), Refusal> {
        let words = &*self.0;
        let room = REQUEST.len() * 8 - 1;
        if request.len() > room {
            return Err(Refusal::Long);
        }
        let before = words[ANSWERED].load(Acquire);
        let mut asked = words[ASKED].load(Acquire);
        let waiting = if before == asked { String::new() } else { text(&words[REQUEST]) };
        let ended = |all: &str| format!("{}{END}", all.trim_end_matches(END));
        // A second try finds the request of the first.
        if waiting.is_empty() || waiting.trim_end_matches(END).rsplit(END).next() != Some(request) {
            let all = match waiting.as_str() {
                "" => request.to_owned(),
                waiting => ended(waiting) + &ended(request),
            };
            if all.len() > room {
                return Err(Refusal::Busy(waiting));
            }
            put(&words[REQUEST], &all);
            asked = asked.wrapping_add(1);
            words[ASKED].store(asked, Release);
        }
        while words[ANSWERED].load(Acquire) != asked {
            if since.elapsed() > patience {
                return Err(Refusal::Pending);
            }
            std::thread::sleep(POLL);
        }
        let answer = text(&words[ANSWER]);
        if answer.is_empty() { Ok(()) } else { Err(Refusal::Answer(answer)) }
    }
}

impl Panel<Mapped> {
    /// Asks for something, and waits for the answer until the time is over.
    ///
    /// # Errors
    /// [`Refusal`].
    pub fn ask(&self, request: &str, patience: Duration) -> Result<(), Refusal> {
        let since = Instant::now();
        let _turn = loop {
            match self.0.turn() {
                Some(turn) => break turn,
                // Each of the others waits as long for its answer.
                None if since.elapsed() > TOOLS * patience => {
                    return Err(Refusal::Busy(text(&self.0[REQUEST])));
                }
                None => std::thread::sleep(POLL),
            }
        };
        self.exchange(request, Instant::now(), patience)
    }
}

/// The text in some words, up to its NUL. The process may write anything there, and a tool may show
/// it on root's terminal. So what commands a terminal is escaped in it.
pub(crate) fn text(words: &[AtomicU64]) -> String {
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.load(Relaxed).to_ne_bytes()).collect();
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    escape(&String::from_utf8_lossy(&bytes[..end]))
}

/// Writes a text, cut to what fits and padded.
pub(crate) fn put(words: &[AtomicU64], text: &str) {
    let mut rest = text.as_bytes();
    for word in words {
        let mut bytes = [0u8; 8];
        let now = rest.len().min(bytes.len());
        bytes[..now].copy_from_slice(&rest[..now]);
        rest = &rest[now..];
        word.store(u64::from_ne_bytes(bytes), Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn blank() -> &'static [AtomicU64; WORDS] {
        Box::leak(Box::new([const { AtomicU64::new(0) }; WORDS]))
    }

    #[test]
    fn text_is_cut_and_padded() {
        let words = [const { AtomicU64::new(u64::MAX) }; 2];
        put(&words, "abc");
        assert_eq!(text(&words), "abc");
        put(&words, "a text that is too long for two words");
        assert_eq!(text(&words), "a text that is t");
    }

    #[test]
    fn nonsense_is_no_panel_and_reads_within_bounds() {
        let words = blank();
        assert!(Panel::new(words).is_none());
        for word in words {
            word.store(u64::MAX, Relaxed);
        }
        words[MAGIC_AT].store(MAGIC, Relaxed);
        words[VERSION_AT].store(VERSION, Relaxed);
        let reading = Panel::new(words).unwrap().read();
        assert!(!reading.consistent && !reading.values.is_empty());
    }

    #[test]
    fn requests_without_an_answer_wait_one_behind_the_other() {
        let words = blank();
        words[MAGIC_AT].store(MAGIC, Relaxed);
        words[VERSION_AT].store(VERSION, Relaxed);
        let panel = Panel::new(words).unwrap();
        let ask = |request: &str| {
            panel.exchange(request, Instant::now(), Duration::from_millis(5)).unwrap_err()
        };
        let asked = || (words[ASKED].load(Relaxed), text(&words[REQUEST]));
        assert!(matches!(ask(&"x".repeat(128)), Refusal::Long));
        assert!(matches!(ask("drain"), Refusal::Pending));
        assert_eq!(asked(), (1, "drain".into()));
        assert!(matches!(ask("set scrub-rate 8M"), Refusal::Pending));
        assert_eq!(asked(), (2, "drain;set scrub-rate 8M;".into()));
        // Once more: it waits already.
        assert!(matches!(ask("set scrub-rate 8M"), Refusal::Pending));
        assert_eq!(asked().0, 2);
        let full = ask(&format!("set {}", "x".repeat(100))).to_string();
        assert!(full.ends_with("answered yet: drain;set scrub-rate 8M;"), "{full}");
        // All of it is answered at once, and the next begins anew.
        words[ANSWERED].store(2, Relaxed);
        assert!(matches!(ask("release"), Refusal::Pending));
        assert_eq!(asked(), (3, "release".into()));
        // An answer to an earlier request is none to this one.
        words[ANSWERED].store(2, Relaxed);
        assert!(matches!(ask("drain"), Refusal::Pending));
        assert_eq!(asked(), (4, "release;drain;".into()));
        put(&words[ANSWER], "no");
        words[ANSWERED].store(4, Relaxed);
        assert!(matches!(ask("drain"), Refusal::Pending));
        assert_eq!(asked(), (5, "drain".into()));
    }

    #[test]
    fn a_text_that_is_read_commands_no_terminal() {
        let words = [const { AtomicU64::new(0) }; 4];
        put(&words, "a\x1b]0;b\x07\r\n\u{9b}\u{202e}c");
        assert_eq!(text(&words), "a\\u{1b}]0;b\\u{7}\\r\\n\\u{9b}\\u{202e}c");
    }
}
