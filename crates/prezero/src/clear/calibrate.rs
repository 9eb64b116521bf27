//! Measures the engines: a short run of each, the median piece of each run.
//!
//! Cached engines are measured hot, which is the only rate that depends on the engine alone;
//! what a scrub reaches depends on where the lines are, and scrubd measures that as it works.

use std::ptr::NonNull;

use super::{Cache, ClearEngine, Engines, engines};

/// Bytes of scratch that a calibration needs (2 MiB).
/// Fixed: what the largest piece that is timed takes.
pub const SCRATCH: usize = crate::units::HUGE;

/// Bytes that are timed at once: some microseconds, far above the clock's grain.
/// Fixed: some hundred grains of the clock.
const PIECE: usize = 64 << 10;
/// Bytes of the scratch that are used. They fit the private cache of a server core.
/// Fixed: what a server core's private cache holds.
const WINDOW: usize = 1 << 20;
/// Pieces timed for each engine. The number is odd for the median, and so large that a few
/// preempted pieces do not move it.
/// Fixed: odd, for the median.
const SAMPLES: usize = 15;
/// The most time for all engines together. It bounds the measurement on a busy or emulated machine.
/// Fixed: a bound that only emulated machines meet.
const BUDGET_NS: u64 = 3_000_000;
/// Percent by which an engine that no allocation can interrupt must be faster. An allocation may
/// have to wait for its piece.
/// Fixed: what a wait for half a piece costs.
const IRREVOCABLE_HANDICAP: u64 = 25;

/// Nanoseconds in a second.
/// Fixed: a unit.
const NS_PER_S: u128 = 1_000_000_000;

/// Measures all engines of this machine and chooses the fastest of each kind. Takes a few
/// milliseconds at most, and does not allocate. `now` tells the time in nanoseconds.
///
/// # Safety
/// `scratch` starts `len` bytes that are mapped, writable, the caller's own and better
/// resident; both are multiples of 4096 bytes, and `len` is not zero.
pub unsafe fn calibrate(scratch: NonNull<u8>, len: usize, now: &dyn Fn() -> u64) -> Engines {
    // SAFETY: the same terms.
    unsafe { choose(engines, scratch, len, now) }
}

/// # Safety
/// As for [`calibrate`].
unsafe fn choose<I>(
    candidates: impl Fn() -> I,
    scratch: NonNull<u8>,
    len: usize,
    now: &dyn Fn() -> u64,
) -> Engines
where
    I: Iterator<Item = &'static dyn ClearEngine>,
{
    let budget = BUDGET_NS / candidates().count().max(1) as u64;
    let (mut cached, mut bypassing, mut demoting) = (None, None, None);
    for engine in candidates() {
        // SAFETY: the caller's scratch; the candidates are those that this CPU supports.
        let rate = unsafe { rate(engine, scratch, len, budget, now) };
        let best = match engine.cache() {
            Cache::Cached => &mut cached,
            Cache::Bypassing => &mut bypassing,
            Cache::Demoted => &mut demoting,
        };
        let better = |&(other, its)| handicapped(engine, rate) > handicapped(other, its);
        if best.as_ref().is_none_or(better) {
            *best = Some((engine, rate));
        }
    }

    let default = Engines::uncalibrated();
    let (cached, cached_rate) = cached.unwrap_or((default.cached, 0));
    let (bypassing, bypassing_rate) = bypassing.unwrap_or((cached, cached_rate));
    Engines {
        cached,
        bypassing,
        demoting: demoting.map(|(engine, _)| engine),
        cached_rate,
        bypassing_rate,
        demoting_rate: demoting.map_or(0, |(_, rate)| rate),
    }
}

fn handicapped(engine: &dyn ClearEngine, rate: u64) -> u128 {
    let percent = if engine.revocable() { 100 + IRREVOCABLE_HANDICAP } else { 100 };
    u128::from(rate) * u128::from(percent)
}

/// Bytes a second of the median piece.
///
/// # Safety
/// As for [`calibrate`]; the CPU supports the engine.
unsafe fn rate(
    engine: &dyn ClearEngine,
    scratch: NonNull<u8>,
    len: usize,
    budget: u64,
    now: &dyn Fn() -> u64,
) -> u64 {
    let piece = PIECE.min(len);
    let pieces = (WINDOW.min(len) / piece).max(1);
    let start = now();
    let over = || now().saturating_sub(start) > budget;
    let clear = |index: usize| {
        // SAFETY: index % pieces is a piece within the scratch.
        unsafe { engine.clear(scratch.add(index % pieces * piece), piece) }
    };

    // Brings the window, and the engine's instructions, to where they are when it works.
    (0..pieces).take_while(|_| !over()).for_each(clear);
    let mut taken = [0u64; SAMPLES];
    let mut samples = 0;
    while samples < SAMPLES && (samples == 0 || !over()) {
        let before = now();
        clear(samples);
        taken[samples] = now().saturating_sub(before);
        samples += 1;
    }
    let taken = &mut taken[..samples];
    taken.sort_unstable();
    let median = taken[samples / 2].max(1);
    (piece as u128 * NS_PER_S / u128::from(median)) as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use prezero_sys::memory::Reservation;
    use prezero_sys::thread::monotonic_ns;
    use std::sync::atomic::AtomicU64;
    use std::sync::atomic::Ordering::Relaxed;

    /// Clears nothing but takes its time, by a clock of its own.
    struct Fake {
        name: &'static str,
        cache: Cache,
        revocable: bool,
        ns_per_page: u64,
        /// One call in this many takes a hundred times as long; 0: no call does.
        hiccup: u64,
        clock: &'static Clock,
    }

    #[derive(Default)]
    struct Clock {
        ns: AtomicU64,
        calls: AtomicU64,
    }

    // SAFETY: it breaks the promise that bytes become zero, of which this test makes no use.
    unsafe impl ClearEngine for Fake {
        fn name(&self) -> &'static str {
            self.name
        }
        fn cache(&self) -> Cache {
            self.cache
        }
        fn revocable(&self) -> bool {
            self.revocable
        }
        unsafe fn clear(&self, _: NonNull<u8>, len: usize) {
            let call = self.clock.calls.fetch_add(1, Relaxed);
            let slow = self.hiccup > 0 && call.is_multiple_of(self.hiccup);
            let ns = self.ns_per_page * (len / 4096) as u64 * if slow { 100 } else { 1 };
            self.clock.ns.fetch_add(ns, Relaxed);
        }
    }

    fn fake(clock: &'static Clock, name: &'static str, cache: Cache, ns_per_page: u64) -> Fake {
        Fake { name, cache, revocable: true, ns_per_page, hiccup: 0, clock }
    }

    fn chosen(clock: &'static Clock, fakes: Vec<Fake>) -> Engines {
        let fakes: &'static [Fake] = fakes.leak();
        let scratch = Reservation::new(2 << 20, 4096).unwrap();
        let all = || fakes.iter().map(|fake| fake as &'static dyn ClearEngine);
        // SAFETY: the scratch is this test's own.
        unsafe { choose(all, scratch.base(), scratch.len(), &|| clock.ns.load(Relaxed)) }
    }

    fn clock() -> &'static Clock {
        Box::leak(Box::default())
    }

    #[test]
    fn fastest_of_each_kind_is_chosen_with_its_rate() {
        let clock = clock();
        let engines = chosen(
            clock,
            vec![
                fake(clock, "slow", Cache::Cached, 200),
                fake(clock, "fast", Cache::Cached, 100),
                fake(clock, "slow-nt", Cache::Bypassing, 300),
                fake(clock, "fast-nt", Cache::Bypassing, 250),
                fake(clock, "down", Cache::Demoted, 400),
            ],
        );
        assert_eq!((engines.cached.name(), engines.bypassing.name()), ("fast", "fast-nt"));
        assert_eq!(engines.demoting.unwrap().name(), "down");
        assert_eq!(engines.cached_rate, 4096 * 1_000_000_000 / 100);
        assert_eq!(engines.bypassing_rate, 4096 * 1_000_000_000 / 250);
        assert_eq!(engines.demoting_rate, 4096 * 1_000_000_000 / 400);
    }

    #[test]
    fn outliers_do_not_decide() {
        let clock = clock();
        let hiccups = Fake { hiccup: 4, ..fake(clock, "hiccups", Cache::Cached, 10) };
        let engines = chosen(clock, vec![fake(clock, "even", Cache::Cached, 20), hiccups]);
        assert_eq!(engines.cached.name(), "hiccups");
        assert_eq!(engines.cached_rate, 4096 * 1_000_000_000 / 10);
    }

    #[test]
    fn irrevocable_engine_must_be_clearly_faster() {
        for (ns_per_page, winner) in [(90, "revocable"), (70, "irrevocable")] {
            let clock = clock();
            let fixed = fake(clock, "irrevocable", Cache::Cached, ns_per_page);
            let fixed = Fake { revocable: false, ..fixed };
            let engines = chosen(clock, vec![fixed, fake(clock, "revocable", Cache::Cached, 100)]);
            assert_eq!(engines.cached.name(), winner);
        }
    }

    #[test]
    fn slow_engines_end_with_the_budget() {
        let clock = clock();
        let slow = vec![
            fake(clock, "slow", Cache::Cached, 20_000),
            fake(clock, "slower", Cache::Bypassing, 50_000),
        ];
        let engines = chosen(clock, slow);
        // Over by the piece that was under way, and by the one sample that each engine gets.
        let piece = 50_000 * (PIECE / 4096) as u64;
        assert!(clock.ns.load(Relaxed) <= BUDGET_NS + 4 * piece);
        assert_eq!((engines.cached.name(), engines.bypassing.name()), ("slow", "slower"));
    }

    #[test]
    fn without_a_bypassing_engine_the_cached_one_stands_in() {
        let clock = clock();
        let engines = chosen(clock, vec![fake(clock, "cached", Cache::Cached, 1)]);
        assert_eq!(engines.bypassing.name(), "cached");
        assert_eq!(engines.bypassing_rate, engines.cached_rate);
        assert!(engines.demoting.is_none());
    }

    #[test]
    fn clock_that_stands_still_ends_too() {
        let clock = clock();
        let engines = chosen(clock, vec![fake(clock, "free", Cache::Cached, 0)]);
        assert!(engines.cached_rate > 0);
    }

    #[test]
    fn real_engines_are_measured_even_in_one_page() {
        for len in [4096, 2 << 20] {
            let scratch = Reservation::new(len, 4096).unwrap();
            // SAFETY: the scratch is this test's own.
            let engines = unsafe { calibrate(scratch.base(), len, &monotonic_ns) };
            assert_eq!(engines.cached.cache(), Cache::Cached);
            assert!(engines.cached_rate > 0 && engines.bypassing_rate > 0);
        }
    }
}
