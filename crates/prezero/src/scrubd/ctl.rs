//! What `prezero ctl` and `prezero top` speak with: scrubd carries out requests of the
//! [panel](crate::observe::panel), and writes its values.
//!
//! Part of each look, and nothing more than a look at one word unless a tool asked or the
//! values are due. It allocates nothing: choices of engines, which allocations may be reading at
//! any time, go into places that were made when scrubd started, and there are [`CHOICES`].

use core::fmt::Write;

use prezero_host::Topology;
use prezero_sys::panel::Words;

use super::thread::{Scrubd, measure};
use crate::clear::choice::Choice;
use crate::config::knobs::{KNOBS, Knob, Turned};
use crate::config::value::Text;
use crate::config::{Config, EngineChoice, Machine};
use crate::count::counters::{Counter, Definition, Unit, Value};
use crate::count::snapshot::FreeState;
use crate::mem::backing::Backing;
use crate::observe::panel::*;
use crate::policy::Throttle;
use crate::sync::{AtomicU64, Ordering};

/// Values are written this often: while a tool watches, and otherwise.
/// Fixed: what a person who watches can read.
const WATCHED_NS: u64 = 100_000_000;
const ALONE_NS: u64 = 1_000_000_000;
/// Different engines and shares of the cache that may be set. To go back to one adds none.
/// Fixed: the length of a table.
const CHOICES: usize = 64;

pub(crate) struct Ctl {
    /// `None`: the kernel gave none, or scrubd has no descriptor table of its own for it.
    words: Option<Words>,
    /// The knobs as they are now.
    config: Config,
    topology: Topology,
    /// Places for choices, and the choices that were made.
    spare: std::slice::IterMut<'static, Choice>,
    chosen: [Option<Chosen>; CHOICES],
    answered: u64,
    published: u64,
}

/// Knobs that were set, and the choice made for them.
#[derive(Clone, Copy)]
struct Chosen {
    engine: EngineChoice,
    cache: Option<usize>,
    choice: &'static Choice,
}

impl Ctl {
    /// Allocates all that it will ever need. `own_files`: whether the calling thread has a
    /// descriptor table of its own.
    pub(crate) fn new(
        config: &Config,
        topology: Topology,
        choice: &Choice,
        own_files: bool,
    ) -> Ctl {
        let words = open(own_files);
        let spare = Box::leak(vec![*choice; CHOICES].into_boxed_slice()).iter_mut();
        let chosen = [None; CHOICES];
        Ctl { words, config: *config, topology, spare, chosen, answered: 0, published: 0 }
    }

    /// The panel can be found by the thread's descriptor alone: it goes with the thread. A tool
    /// that has it mapped sees that it is over.
    pub(crate) fn close(&self) {
        if let Some(words) = self.words {
            words[MAGIC_AT].store(0, Ordering::Release);
        }
    }

    /// The next thread has a panel of its own. Knobs that were set stay so. The old one is unmapped
    /// only now: that may take the kernel milliseconds, and no thread waits.
    #[allow(unsafe_code)]
    pub(crate) fn begin_again(&mut self, own_files: bool) {
        if let Some(words) = self.words.take() {
            // SAFETY: no copy was kept.
            unsafe { prezero_sys::panel::discard(words) };
        }
        self.words = open(own_files);
        (self.answered, self.published) = (0, 0);
    }
}

/// A panel that is not ready yet.
fn open(own_files: bool) -> Option<Words> {
    let words = own_files.then(prezero_sys::panel::create).and_then(Result::ok)?;
    words[PID_AT].store(u64::from(prezero_sys::process::id()), Ordering::Relaxed);
    words[VERSION_AT].store(VERSION, Ordering::Relaxed);
    Some(words)
}

impl<B: Backing + 'static> Scrubd<B> {
    /// Carries out requests, and writes the values if they are due.
    pub(crate) fn attend(&mut self, now: u64) {
        let Some(words) = self.ctl.words else { return };
        let asked = words[ASKED].load(Ordering::Acquire);
        if asked != self.ctl.answered {
            self.ctl.answered = asked;
            let answer = self.answer(words);
            self.publish(words, now);
            put(&words[ANSWER], answer.as_str());
            words[ANSWERED].store(asked, Ordering::Release);
            return;
        }
        let watched = words[WATCHED].load(Ordering::Relaxed);
        if watched > now + READER_NS {
            // No tool can know that it still looks then.
            words[WATCHED].store(now + READER_NS, Ordering::Relaxed);
        }
        let every = if watched > now { WATCHED_NS } else { ALONE_NS };
        if now.saturating_sub(self.ctl.published) >= every {
            self.publish(words, now);
        }
    }

    /// Writes the values: nothing will change them soon.
    pub(crate) fn leave(&mut self) {
        if let Some(words) = self.ctl.words {
            self.publish(words, self.zone.pool.clock.now_ns());
        }
    }

    fn answer(&mut self, words: Words) -> Text<128> {
        let mut request = Text::<128>::empty();
        read(&words[REQUEST], &mut request);
        let outcome = match request.as_str().rsplit_once(END) {
            None => self.carry_out(request.as_str()),
            // A request without an end is being written. All others are carried out, whatever one
            // comes to.
            Some((ended, _)) => {
                let mut outcome = Ok(());
                for request in ended.split(END) {
                    outcome = self.carry_out(request);
                }
                outcome
            }
        };
        outcome.map_or_else(Text::head, |()| Text::empty())
    }

    fn carry_out(&mut self, request: &str) -> Result<(), &'static str> {
        let mut parts = request.splitn(3, ' ');
        match (parts.next(), parts.next(), parts.next()) {
            (Some("drain"), None, None) => {
                self.zone.drain_all();
                Ok(())
            }
            (Some("release"), None, None) => {
                self.zone.purge_all();
                Ok(())
            }
            (Some("set"), Some(key), Some(value)) => self.turn(key, value),
            _ => Err("no such request; give set KEY VALUE, drain or release"),
        }
    }

    /// Turns one knob.
    fn turn(&mut self, key: &str, value: &str) -> Result<(), &'static str> {
        let knob = Knob::named(key).ok_or("no such knob")?;
        if knob.turned == Turned::AtStart {
            return Err("set when the process begins; give it to prezero run");
        }
        let mut config = self.ctl.config;
        // No knob that may be turned asks for the memory.
        let machine = Machine {
            memory: config.limit,
            engine: crate::clear::engine_named,
            reports_free: false,
        };
        (knob.set)(&mut config, value, &machine)?;
        if config.lower_stop() && knob.name == "scrub-stop" {
            return Err("above scrub-start; give scrub-start or less");
        }
        if (config.engine, config.scrub_cache)
            != (self.ctl.config.engine, self.ctl.config.scrub_cache)
        {
            self.choose(&config)?;
        }
        self.zone.tuning.set(&config);
        self.ctl.config = config;
        Ok(())
    }

    /// Puts other engines in use, or another share of the cache.
    fn choose(&mut self, config: &Config) -> Result<(), &'static str> {
        let same =
            |chosen: &&Chosen| (chosen.engine, chosen.cache) == (config.engine, config.scrub_cache);
        if let Some(chosen) = self.ctl.chosen.iter().flatten().find(same) {
            self.zone.clearing.use_choice(chosen.choice);
            return Ok(());
        }
        let choice = self.ctl.spare.next().ok_or(
            "the 65th engine and share of the cache; give one of those before, or start the process anew",
        )?;
        // The first choice need not be measured any more.
        self.unmeasured = None;
        let choice = measure(self.zone, config, &self.ctl.topology, choice);
        let chosen = Chosen { engine: config.engine, cache: config.scrub_cache, choice };
        if let Some(place) = self.ctl.chosen.iter_mut().find(|place| place.is_none()) {
            *place = Some(chosen);
        }
        Ok(())
    }

    fn publish(&mut self, words: Words, now: u64) {
        let snapshot = self.zone.snapshot();
        let sequence = words[SEQUENCE].load(Ordering::Relaxed) | 1;
        words[SEQUENCE].store(sequence, Ordering::Relaxed);
        // A tool that sees a new value sees the odd number too.
        std::sync::atomic::fence(Ordering::Release);
        let mut records = Records { words, at: RECORDS, values: 0, texts: 0 };
        for &counter in Counter::ALL {
            records.value(counter.definition(), Value::Int(snapshot.get(counter)));
        }
        for (definition, value) in snapshot.gauges.scalars() {
            records.value(definition, value);
        }
        for (order, blocks) in snapshot.gauges.free.iter().enumerate() {
            for state in FreeState::ALL {
                let mut name = Text::<40>::empty();
                let _ = write!(name, "free_blocks_{}_{order}", state.name());
                records.number(name.as_str(), Unit::Count, Value::Int(blocks[state as usize]));
            }
        }
        for knob in KNOBS {
            let mut value = Text::<120>::empty();
            let _ = write!(value, "{}", self.ctl.config.show(knob));
            records.text(knob.name, 1, value.as_str());
        }
        let mood = match self.mood {
            Throttle::Normal => "by the book",
            Throttle::Unsure => "CPUs busy",
            Throttle::Crowded => "no idle CPU",
            Throttle::Resting => "resting",
            Throttle::Pressed => "memory is short",
        };
        records.text("scrubd", 0, mood);
        records.text("trust", 0, if self.zone.trust.is_whole() { "whole" } else { "lost" });
        records.text("engine_cached", 0, snapshot.gauges.engine_cached);
        records.text("engine_bypassing", 0, snapshot.gauges.engine_bypassing);
        records.text("version", 0, env!("CARGO_PKG_VERSION"));
        words[VALUES].store(records.values, Ordering::Relaxed);
        words[TEXTS].store(records.texts, Ordering::Relaxed);
        words[PUBLISHED].store(now, Ordering::Relaxed);
        words[SEQUENCE].store(sequence.wrapping_add(1), Ordering::Release);
        words[MAGIC_AT].store(MAGIC, Ordering::Release);
        self.ctl.published = now;
    }
}

/// Records one after the other: first values, then texts. A record that does not fit is left out.
struct Records {
    words: Words,
    at: usize,
    values: u64,
    texts: u64,
}

impl Records {
    fn value(&mut self, definition: &Definition, value: Value) {
        self.number(definition.name, definition.unit, value);
    }

    fn number(&mut self, name: &str, unit: Unit, value: Value) {
        let Some(record) = self.next(VALUE_WORDS) else { return };
        let unit = match unit {
            Unit::Count => "count",
            Unit::Pages => "pages",
            Unit::Bytes => "bytes",
            Unit::Nanoseconds => "ns",
            Unit::NanosecondsPerPage => "ns/page",
        };
        let (bits, kind) = match value {
            Value::Int(n) => (n, 0),
            Value::Float(x) => (x.to_bits(), 1),
        };
        put(&record[..VALUE_NAME], name);
        put(&record[VALUE_NAME..VALUE_NAME + 1], unit);
        record[VALUE_NAME + 1].store(bits, Ordering::Relaxed);
        record[VALUE_NAME + 2].store(kind, Ordering::Relaxed);
        self.values += 1;
    }

    fn text(&mut self, name: &str, kind: u64, value: &str) {
        let Some(record) = self.next(TEXT_WORDS) else { return };
        put(&record[..TEXT_NAME], name);
        record[TEXT_NAME].store(kind, Ordering::Relaxed);
        put(&record[TEXT_NAME + 1..], value);
        self.texts += 1;
    }

    fn next(&mut self, words: usize) -> Option<&'static [AtomicU64]> {
        let record = self.words.get(self.at..self.at + words)?;
        self.at += words;
        Some(record)
    }
}

/// The text in some words, without a heap; empty if it is none.
fn read(words: &[AtomicU64], to: &mut Text<128>) {
    let mut bytes = [0u8; 128];
    for (part, word) in bytes.chunks_exact_mut(8).zip(words) {
        part.copy_from_slice(&word.load(Ordering::Relaxed).to_ne_bytes());
    }
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    let _ = to.write_str(std::str::from_utf8(&bytes[..end]).unwrap_or_default());
}
