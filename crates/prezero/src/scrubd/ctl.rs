//! What `prezero ctl` and `prezero top` speak with: scrubd carries out what the
//! [panel](crate::count::panel) asks for, and writes its values.
//!
//! Part of each look, and nothing more than a look at one word unless a tool asked or the
//! values are due. It allocates nothing.

use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use prezero_host::Topology;
use prezero_sys::panel::Words;

use super::thread::Scrubd;
use crate::config::knobs::{KNOBS, Turned};
use crate::config::{Config, StatsSink};
use crate::count::panel::{Panel, READER_NS};
use crate::mem::backing::Backing;
use crate::policy::Throttle;

/// Values are written this often: while a tool watches, and otherwise.
/// Fixed: what a person who watches can read.
const WATCHED_NS: u64 = 100_000_000;
const ALONE_NS: u64 = 1_000_000_000;

pub(crate) struct Ctl {
    /// `None`: the kernel gave none, or scrubd has no descriptor table of its own for it.
    words: Option<Words>,
    /// The knobs as they are now.
    config: Config,
    topology: Topology,
    /// Those of the panel's requests that were carried out.
    releases: u64,
    published: u64,
}

impl Ctl {
    /// Allocates all that it will ever need. `own_files`: whether the calling thread has a
    /// descriptor table of its own.
    pub(crate) fn new(config: &Config, topology: Topology, own_files: bool) -> Ctl {
        let words = open(own_files, config);
        let (releases, published) = (0, 0);
        Ctl { words, config: *config, topology, releases, published }
    }

    /// The panel can be found by the thread's descriptor alone: it goes with the thread. A tool
    /// that has it mapped sees that it is over.
    pub(crate) fn close(&self) {
        if let Some(words) = self.words {
            Panel::of(words).magic.store(0, Release);
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
        self.words = open(own_files, &self.config);
        (self.releases, self.published) = (0, 0);
    }
}

/// A panel that is not ready yet.
fn open(own_files: bool, config: &Config) -> Option<Words> {
    let words = own_files.then(prezero_sys::panel::create).and_then(Result::ok)?;
    Panel::of(words).begin(config);
    Some(words)
}

impl<B: Backing + 'static> Scrubd<B> {
    /// Carries out requests, and writes the values if they are due.
    pub(crate) fn attend(&mut self, now: u64) {
        let Some(words) = self.ctl.words else { return };
        let panel = Panel::of(words);
        let asked = panel.requests.asked.load(Acquire);
        if asked != panel.requests.answered.load(Relaxed) {
            self.carry_out(panel);
            self.publish(panel, now);
            panel.requests.answered.store(asked, Release);
            return;
        }
        let watched = panel.watched.load(Relaxed);
        if watched > now + READER_NS {
            // No tool can know that it still looks then.
            panel.watched.store(now + READER_NS, Relaxed);
        }
        let every = if watched > now { WATCHED_NS } else { ALONE_NS };
        if now.saturating_sub(self.ctl.published) >= every {
            self.publish(panel, now);
        }
    }

    /// Writes the values: nothing will change them soon.
    pub(crate) fn leave(&mut self) {
        if let Some(words) = self.ctl.words {
            self.publish(Panel::of(words), self.zone.pool.clock.now_ns());
        }
    }

    fn carry_out(&mut self, panel: &Panel) {
        self.turn(panel);
        let releases = panel.requests.releases.load(Relaxed);
        if std::mem::replace(&mut self.ctl.releases, releases) != releases {
            self.zone.purge_all();
        }
    }

    /// Turns the knobs as the panel has them, and puts back what cannot be.
    fn turn(&mut self, panel: &Panel) {
        let given = panel.knobs.each_ref().map(|word| word.load(Relaxed));
        let mut config = self.ctl.config;
        for (knob, &word) in KNOBS.iter().zip(&given) {
            let mut turned = config;
            if knob.turned == Turned::AnyTime && (knob.take)(&mut turned, word).is_ok() {
                config = turned;
            }
        }
        self.zone.clearing.use_engine(config.engine.name());
        self.zone.clearing.learn(&self.ctl.topology, config.scrub_cache);
        self.zone.tuning.set(&config);
        self.ctl.config = config;
        for ((knob, word), given) in KNOBS.iter().zip(&panel.knobs).zip(given) {
            // A word that is another by now belongs to the next request.
            let _ = word.compare_exchange(given, (knob.word)(&config), Relaxed, Relaxed);
        }
    }

    fn publish(&mut self, panel: &Panel, now: u64) {
        let snapshot = self.zone.snapshot();
        let mood = match self.mood {
            Throttle::Normal => "by the book",
            Throttle::Unsure => "CPUs busy",
            Throttle::Crowded => "no idle CPU",
            Throttle::Resting => "resting",
            Throttle::Pressed => "memory is short",
        };
        let trust = if self.zone.trust.is_whole() { "whole" } else { "lost" };
        let (cached, bypassing) = (snapshot.gauges.engine_cached, snapshot.gauges.engine_bypassing);
        let stats = match self.ctl.config.stats {
            StatsSink::File(path) => path,
            _ => "",
        };
        let version = env!("CARGO_PKG_VERSION");
        panel.publish(&snapshot, [mood, trust, cached, bypassing, version, stats], now);
        self.ctl.published = now;
    }
}
