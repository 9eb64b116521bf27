//! The knobs that may be turned while the program runs, as scrubd and requests read them.
//!
//! Each knob is a word of its own, so that no reader waits for a writer. Two that are read together
//! may be of different moments. Each is a valid value at any time.

use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering::Relaxed};

use crate::config::{Config, Verify};
use crate::units::{MAX_ORDER, Order, PAGE};

/// No order: never.
const NEVER: u32 = MAX_ORDER.get() + 1;
/// No rate.
const OFF: u64 = 0;

#[derive(Debug)]
pub(crate) struct Tuning {
    scrub_start: AtomicU32,
    scrub_stop: AtomicU32,
    /// The bits of an `f32`; not a number: no limit.
    scrub_load: AtomicU32,
    scrub_rate: AtomicU64,
    /// Pages; all ones: no limit.
    stock: AtomicU64,
    decay_ns: AtomicU64,
    verify: AtomicU8,
}

impl Tuning {
    pub(crate) fn new(config: &Config) -> Tuning {
        let tuning = Tuning {
            scrub_start: AtomicU32::new(NEVER),
            scrub_stop: AtomicU32::new(NEVER),
            scrub_load: AtomicU32::new(0),
            scrub_rate: AtomicU64::new(OFF),
            stock: AtomicU64::new(u64::MAX),
            decay_ns: AtomicU64::new(0),
            verify: AtomicU8::new(0),
        };
        tuning.set(config);
        tuning
    }

    /// From now on as in `config`.
    pub(crate) fn set(&self, config: &Config) {
        let order = |order: Option<Order>| order.map_or(NEVER, Order::get);
        self.scrub_start.store(order(config.scrub_start), Relaxed);
        self.scrub_stop.store(order(Some(config.scrub_stop)), Relaxed);
        self.scrub_load.store(config.scrub_load.unwrap_or(f32::NAN).to_bits(), Relaxed);
        self.scrub_rate.store(config.scrub_rate.map_or(OFF, |rate| rate as u64), Relaxed);
        let pages = config.stock.map_or(u64::MAX, |bytes| (bytes / PAGE) as u64);
        self.stock.store(pages, Relaxed);
        let decay = u64::try_from(config.decay.as_nanos()).unwrap_or(u64::MAX);
        self.decay_ns.store(decay, Relaxed);
        self.verify.store(config.verify as u8, Relaxed);
    }

    pub(crate) fn scrub_start(&self) -> Option<Order> {
        Order::new(self.scrub_start.load(Relaxed))
    }

    pub(crate) fn scrub_stop(&self) -> Order {
        Order::new(self.scrub_stop.load(Relaxed)).unwrap_or(MAX_ORDER)
    }

    /// The load above which scrubd rests.
    pub(crate) fn scrub_load(&self) -> Option<f32> {
        Some(f32::from_bits(self.scrub_load.load(Relaxed))).filter(|load| !load.is_nan())
    }

    /// Bytes a second.
    pub(crate) fn scrub_rate(&self) -> Option<u64> {
        Some(self.scrub_rate.load(Relaxed)).filter(|rate| *rate != OFF)
    }

    /// Pages that may lie ready, at most.
    pub(crate) fn stock(&self) -> u64 {
        self.stock.load(Relaxed)
    }

    pub(crate) fn decay_ns(&self) -> u64 {
        self.decay_ns.load(Relaxed)
    }

    #[inline]
    pub(crate) fn verify(&self) -> Verify {
        match self.verify.load(Relaxed) {
            off if off == Verify::Off as u8 => Verify::Off,
            full if full == Verify::Full as u8 => Verify::Full,
            _ => Verify::Sample,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Machine;
    use crate::config::knobs::{KNOBS, Turned};
    use std::time::Duration;

    #[test]
    fn a_knob_that_may_be_turned_changes_what_a_zone_in_use_reads() {
        let machine = Machine { memory: 1 << 30, engine: |_| None, reports_free: false };
        let before = Config::new(&machine);
        let seen = |config: &Config| {
            format!("{:?} {:?} {:?}", Tuning::new(config), config.engine, config.scrub_cache)
        };
        let values = ["0", "9", "0.5", "64M", "never", "off", "full", "stosb", "erms"];
        for knob in KNOBS.iter().filter(|knob| knob.turned == Turned::AnyTime) {
            let engine = |_: &str| Some("stosb");
            let machine = Machine { memory: 1 << 30, engine, reports_free: false };
            let changes = values.iter().any(|value| {
                let mut after = before;
                (knob.set)(&mut after, value, &machine).is_ok() && seen(&after) != seen(&before)
            });
            assert!(changes, "{}", knob.name);
        }
    }

    #[test]
    fn a_value_that_is_set_is_read() {
        let mut config =
            Config::new(&Machine { memory: 1 << 30, engine: |_| None, reports_free: false });
        let tuning = Tuning::new(&config);
        assert_eq!(tuning.scrub_start(), config.scrub_start);
        assert_eq!((tuning.scrub_load(), tuning.scrub_rate()), (None, None));
        assert_eq!(tuning.stock(), u64::MAX);
        assert_eq!(tuning.verify(), Verify::Sample);

        config.scrub_start = None;
        config.scrub_stop = MAX_ORDER;
        config.scrub_load = Some(1.5);
        config.scrub_rate = Some(1 << 21);
        config.stock = Some(1 << 20);
        config.decay = Duration::MAX;
        for verify in [Verify::Off, Verify::Full, Verify::Sample] {
            config.verify = verify;
            tuning.set(&config);
            assert_eq!(tuning.verify(), verify);
        }
        assert_eq!((tuning.scrub_start(), tuning.scrub_stop()), (None, MAX_ORDER));
        assert_eq!((tuning.scrub_load(), tuning.scrub_rate()), (Some(1.5), Some(1 << 21)));
        assert_eq!((tuning.stock(), tuning.decay_ns()), (256, u64::MAX));
    }
}
