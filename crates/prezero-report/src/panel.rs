//! The panel of a process, as a tool reads it and turns its knobs: [`prezero::internal::panel`] says what it is.

use std::fmt;
use std::ops::Deref;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicU64, fence};
use std::time::{Duration, Instant};

use prezero::internal::panel::{self, FACTS, MAGIC, READER_NS};
use prezero::internal::{KNOBS, Knob, Turned};
use prezero::{Config, Machine, Snapshot, Value, engine_named};
use prezero_sys::escape::escape;
use prezero_sys::panel::{Mapped, WORDS};
use prezero_sys::thread;

/// How long a reader waits for scrubd to be done writing: it may have lost its CPU.
const PATIENCE: Duration = Duration::from_millis(50);
const POLL: Duration = Duration::from_millis(2);

const NO_KNOB: Refusal = Refusal::Wrong("no such knob");

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
    pub values: Vec<(String, &'static str, Value)>,
    /// The knobs as they are set.
    pub knobs: Vec<(&'static str, String)>,
    /// What else is known: engines, what scrubd is about.
    pub facts: Vec<(&'static str, String)>,
}

impl Reading {
    /// A number by name; 0 if there is none.
    pub fn number(&self, name: &str) -> f64 {
        let found = self.values.iter().find(|(each, ..)| each == name);
        found.map_or(0.0, |(.., number)| number.as_f64())
    }

    /// A fact by name; empty if there is none.
    pub fn fact(&self, name: &str) -> &str {
        let found = self.facts.iter().find(|(each, _)| *each == name);
        found.map_or("", |(_, fact)| fact)
    }
}

/// Why a request was not carried out.
#[derive(PartialEq, Eq, Debug)]
pub enum Refusal {
    /// What is wrong with it.
    Wrong(&'static str),
    /// scrubd sleeps or has no CPU. It carries the request out before it does anything else.
    Pending,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Refusal::Wrong(why) => why,
            Refusal::Pending => {
                "not yet: scrubd sleeps or has no CPU; when the program frees memory it will be done \
                 before anything else"
            }
        })
    }
}

impl std::error::Error for Refusal {}

/// The panel of a process.
pub struct Panel<W: Deref<Target = [AtomicU64; WORDS]> = Mapped>(W);

impl<W: Deref<Target = [AtomicU64; WORDS]>> fmt::Debug for Panel<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Panel").field(&self.layout().pid).finish()
    }
}

impl<W: Deref<Target = [AtomicU64; WORDS]>> Panel<W> {
    /// The panel in words that [`prezero_sys::panel`] found. `None` if it is of another version, or
    /// not ready.
    pub fn new(words: W) -> Option<Panel<W>> {
        let panel = Panel(words);
        let known = || panel.layout().version.load(Relaxed) == panel::version();
        (!panel.is_over() && known()).then_some(panel)
    }

    fn layout(&self) -> &panel::Panel {
        panel::Panel::of(&self.0)
    }

    /// Whether its scrubd has ended: the values stay as they are, and a process that goes on may
    /// have another panel.
    pub fn is_over(&self) -> bool {
        self.layout().magic.load(Acquire) != MAGIC
    }

    /// Says that a tool watches, and reads everything.
    pub fn read(&self) -> Reading {
        let panel = self.layout();
        let now = thread::monotonic_ns();
        panel.watched.fetch_max(now + READER_NS, Relaxed);
        let since = Instant::now();
        loop {
            let before = panel.sequence.load(Acquire);
            let reading = self.look(now);
            fence(Acquire);
            let settled = before.is_multiple_of(2) && panel.sequence.load(Relaxed) == before;
            if settled || since.elapsed() > PATIENCE {
                return Reading { consistent: settled, ..reading };
            }
            std::thread::sleep(POLL);
        }
    }

    fn look(&self, now: u64) -> Reading {
        let panel = self.layout();
        let mut words = panel.values.iter().map(|word| word.load(Relaxed));
        let mut values = vec![];
        panel::each_value(&Snapshot::default(), |name, unit, kind| {
            let word = words.next().unwrap_or_default();
            let value = match kind {
                Value::Int(_) => Value::Int(word),
                Value::Float(_) => Value::Float(f64::from_bits(word)),
            };
            values.push((name.to_string(), unit.name(), value));
        });
        let facts = FACTS.iter().zip(&panel.facts).map(|(name, words)| (*name, text(words)));
        let mut reading = Reading {
            pid: panel.pid.load(Relaxed) as u32,
            age: Duration::from_nanos(now.saturating_sub(panel.published.load(Relaxed))),
            consistent: true,
            values,
            knobs: vec![],
            facts: facts.collect(),
        };
        let config = self.config();
        let knobs = KNOBS.iter().zip(&panel.knobs).map(|(knob, word)| match knob.name {
            _ if (knob.word)(&config) == word.load(Relaxed) => config.show(knob).to_string(),
            // What no word can say.
            "engine" => reading.fact("engine_cached").into(),
            name => reading.fact(name).into(),
        });
        reading.knobs = KNOBS.iter().map(|knob| knob.name).zip(knobs).collect();
        reading.facts.retain(|(name, _)| *name != "stats");
        reading
    }

    /// The knobs as the panel has them.
    fn config(&self) -> Config {
        let mut config = Config::new(&MACHINE);
        for (knob, word) in KNOBS.iter().zip(&self.layout().knobs) {
            let mut with = config;
            if (knob.take)(&mut with, word.load(Relaxed)).is_ok() {
                config = with;
            }
        }
        config
    }

    /// Asks for `set KEY VALUE` or `release`, and waits until it is done or the time is over.
    ///
    /// # Errors
    /// [`Refusal`].
    pub fn ask(&self, request: &str, patience: Duration) -> Result<(), Refusal> {
        let requests = &self.layout().requests;
        let mut parts = request.splitn(3, ' ');
        match (parts.next(), parts.next(), parts.next()) {
            (Some("release"), None, None) => {
                requests.releases.fetch_add(1, Relaxed);
                self.wait(patience)
            }
            (Some("set"), Some(key), Some(value)) => self.set(key, value, patience),
            _ => Err(Refusal::Wrong("no such request; give set KEY VALUE or release")),
        }
    }

    fn set(&self, key: &str, value: &str, patience: Duration) -> Result<(), Refusal> {
        let knob = Knob::named(key).ok_or(NO_KNOB)?;
        if knob.turned == Turned::AtStart {
            return Err(Refusal::Wrong("set when the process begins; give it to prezero run"));
        }
        let mut config = self.config();
        (knob.set)(&mut config, value, &MACHINE).map_err(Refusal::Wrong)?;
        let mut words = KNOBS.iter().zip(&self.layout().knobs);
        let (_, word) = words.find(|(each, _)| each.name == key).ok_or(NO_KNOB)?;
        let (given, before) = ((knob.word)(&config), word.load(Relaxed));
        word.store(given, Relaxed);
        self.wait(patience)?;
        let is_choice = matches!(knob.name, "engine" | "scrub-cache");
        if is_choice && given != before && word.load(Relaxed) == before {
            return Err(Refusal::Wrong(
                "the 65th engine and share of the cache; give one of those before, or start the process anew",
            ));
        }
        Ok(())
    }

    /// Tells scrubd that there is something to do.
    fn wait(&self, patience: Duration) -> Result<(), Refusal> {
        let (requests, since) = (&self.layout().requests, Instant::now());
        let asked = requests.asked.fetch_add(1, Release).wrapping_add(1);
        // Not behind.
        while requests.answered.load(Acquire).wrapping_sub(asked) > u64::MAX / 2 {
            if since.elapsed() > patience {
                return Err(Refusal::Pending);
            }
            std::thread::sleep(POLL);
        }
        Ok(())
    }
}

/// For knobs that ask the machine for nothing but engines.
const MACHINE: Machine = Machine { memory: 1 << 30, engine: engine_named, reports_free: false };

/// The text in some words, up to its NUL. The process may write anything there, and a tool may show
/// it on root's terminal. So what commands a terminal is escaped in it.
fn text(words: &[AtomicU64]) -> String {
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.load(Relaxed).to_ne_bytes()).collect();
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    escape(&String::from_utf8_lossy(&bytes[..end]))
}

#[cfg(test)]
mod tests {
    use super::*;

    type Words = &'static [AtomicU64; WORDS];

    /// A panel whose scrubd sleeps.
    fn asleep() -> (Words, Panel<Words>) {
        let words: Words = Box::leak(Box::new([const { AtomicU64::new(0) }; WORDS]));
        assert!(Panel::new(words).is_none(), "not ready");
        let layout = panel::Panel::of(words);
        layout.magic.store(MAGIC, Relaxed);
        assert!(Panel::new(words).is_none(), "of another version");
        layout.version.store(panel::version(), Relaxed);
        let machine = Machine { memory: 1 << 30, engine: engine_named, reports_free: false };
        let config = Config::new(&machine);
        KNOBS
            .iter()
            .zip(&layout.knobs)
            .for_each(|(knob, word)| word.store((knob.word)(&config), Relaxed));
        (words, Panel::new(words).unwrap())
    }

    fn knob<'a>(reading: &'a Reading, name: &str) -> &'a str {
        &reading.knobs.iter().find(|(each, _)| *each == name).unwrap().1
    }

    #[test]
    fn nonsense_reads_within_bounds() {
        let (words, panel) = asleep();
        words.iter().skip(2).for_each(|word| word.store(u64::MAX, Relaxed));
        let reading = panel.read();
        assert!(!reading.consistent && !reading.values.is_empty());
        assert_eq!(knob(&reading, "scrub-rate"), "off");
        words[0].store(0, Relaxed);
        assert!(panel.is_over());
    }

    #[test]
    fn tools_that_wait_do_not_wait_for_each_other() {
        let (words, panel) = asleep();
        let requests = &panel::Panel::of(words).requests;
        let ask = |request: &str| panel.ask(request, Duration::from_millis(5));
        for request in ["set scrub-rate 8M", "release", "set verify full", "set verify full"] {
            assert_eq!(ask(request), Err(Refusal::Pending), "{request}");
        }
        let reading = panel.read();
        assert_eq!([knob(&reading, "scrub-rate"), knob(&reading, "verify")], ["8M", "full"]);
        assert_eq!(requests.releases.load(Relaxed), 1);
        // What was carried out before is no answer to what comes next.
        requests.answered.store(4, Relaxed);
        assert_eq!(ask("release"), Err(Refusal::Pending));
        requests.answered.store(6, Relaxed);
        assert_eq!(ask("release"), Ok(()));
    }

    #[test]
    fn what_cannot_be_is_refused_and_leaves_the_panel_alone() {
        let (words, panel) = asleep();
        let before = panel.read().knobs;
        for (request, why) in [
            ("set scrub-stop 9", "no such knob"),
            ("set scrub-rate 1", "give 2M or more"),
            ("set limit 1G", "when the process begins"),
            ("set engine warp", "no such clear engine"),
            ("set colour red", "no such knob"),
            ("set verify", "no such request"),
            ("dance", "no such request"),
        ] {
            let refusal = panel.ask(request, Duration::ZERO).unwrap_err().to_string();
            assert!(refusal.contains(why), "{request}: {refusal}");
        }
        assert_eq!(
            (panel.read().knobs, panel::Panel::of(words).requests.asked.load(Relaxed)),
            (before, 0)
        );
    }

    #[test]
    fn a_choice_that_scrubd_puts_back_is_refused() {
        let (words, panel) = asleep();
        let layout = panel::Panel::of(words);
        let at = KNOBS.iter().position(|knob| knob.name == "scrub-cache").unwrap();
        let before = layout.knobs[at].load(Relaxed);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while layout.requests.asked.load(Acquire) == 0 {
                    std::thread::yield_now();
                }
                layout.knobs[at].store(before, Relaxed);
                layout.requests.answered.store(1, Release);
            });
            let refusal = panel.ask("set scrub-cache 64K", Duration::MAX).unwrap_err();
            assert!(refusal.to_string().starts_with("the 65th engine"), "{refusal}");
        });
    }

    #[test]
    fn a_text_that_is_read_commands_no_terminal_and_stands_for_a_word_that_says_less() {
        let (words, panel) = asleep();
        let layout = panel::Panel::of(words);
        let (mut bytes, hostile) = ([0; 120], "a\x1b]0;b\x07\r\n\u{9b}\u{202e}c");
        bytes[..hostile.len()].copy_from_slice(hostile.as_bytes());
        for fact in &layout.facts {
            for (word, bytes) in fact.iter().zip(bytes.chunks_exact(8)) {
                word.store(u64::from_ne_bytes(bytes.try_into().unwrap()), Relaxed);
            }
        }
        let at = |name| &layout.knobs[KNOBS.iter().position(|knob| knob.name == name).unwrap()];
        at("engine").store(12_345, Relaxed);
        at("stats").store(3, Relaxed);
        let reading = panel.read();
        let shown = "a\\u{1b}]0;b\\u{7}\\r\\n\\u{9b}\\u{202e}c";
        assert_eq!([knob(&reading, "engine"), knob(&reading, "stats")], [shown, shown]);
        assert_eq!(reading.facts.len(), FACTS.len() - 1);
    }
}
