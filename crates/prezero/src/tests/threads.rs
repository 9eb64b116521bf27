//! Real threads on one zone, with a scrubber in their way on purpose.
#![allow(unsafe_code)]

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};

use prezero_sys::thread::{self, CpuMask, affinity, set_affinity};

use super::fake::FakeThread;
use super::world::{config, fill, holds, is_zero};
use crate::block::{Block, Dirty};
use crate::config::ablation::Ablation;
use crate::config::{Config, EngineChoice};
use crate::count::counters::Counter;
use crate::mem::backing::Anonymous;
use crate::policy::Throttle;
use crate::scrubd::scrub::Scrubber;
use crate::units::{HUGE, Order, PAGE, PageId};
use crate::zone::Zone;

const HUGE_BLOCKS: usize = 16;
const WORKERS: u8 = 4;
/// Requests of one worker in one round, and rounds until an abort must have happened.
const REQUESTS: u32 = 1000;
const ROUNDS: u32 = 20;
/// Requests between two naps of a worker, and their length in ns: when all nap the scrubber runs,
/// and the next request finds it in the middle of its work.
const BURST: u32 = 20;
const NAP_NS: u64 = 200_000;
/// Blocks that a worker holds at once.
const HELD: usize = 6;
/// Sizes across classes and huge blocks, in pages.
const SIZES: [u32; 10] = [1, 4, 16, 17, 64, 100, 256, 512, 600, 1024];

/// Sizes of some huge blocks, and one that lies between them.
const LARGE: [u32; 4] = [512, 1024, 1500, 2048];

/// A clock that runs so fast that every block has rested when scrubd sees it.
fn fast() -> u64 {
    thread::monotonic_ns() << 8
}

/// Xorshift: which request comes next, the same in every run.
struct Dice(u32);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 17;
        self.0 ^= self.0 << 5;
        self.0 as usize % sides
    }
}

fn work(zone: &Zone<Anonymous>, sizes: &[u32], requests: u32, tag: u8, seed: u32) {
    let mut dice = Dice(seed);
    let mut held: Vec<Block<Dirty>> = Vec::new();
    let intact = |block: &Block<Dirty>| {
        let first: PageId = block.first();
        (0..block.pages()).all(|n| holds(zone, first.plus(n), tag))
    };
    let never = AtomicU32::new(0);
    for request in 0..requests {
        if request % BURST == 0 {
            thread::futex_wait(&never, 0, Some(NAP_NS));
        }
        if held.len() == HELD {
            let block = held.swap_remove(dice.roll(HELD));
            assert!(intact(&block), "another owner wrote into {block:?}");
            let keep = block.pages() / 2;
            zone.free(if dice.roll(4) == 0 { zone.shorten_to(block, keep) } else { block });
        }
        let pages = sizes[dice.roll(sizes.len())];
        let kind = dice.roll(8);
        let block = match kind {
            0 => zone.plain(pages, Order::MIN),
            _ => {
                let zero = match kind {
                    1 => zone.only_zero(pages, Order::MIN),
                    _ => zone.zero(pages, Order::MIN),
                };
                if let Some(block) = &zero {
                    assert!(is_zero(zone, block), "{block:?} is not zero");
                }
                match zero {
                    Some(block) if kind == 2 => {
                        zone.free_zeroed(block);
                        None
                    }
                    zero => zero.map(Block::into_dirty),
                }
            }
        };
        if let Some(block) = block {
            fill(zone, block.first(), block.pages(), tag);
            held.push(block);
        }
    }
    for block in held {
        assert!(intact(&block), "another owner wrote into {block:?}");
        zone.free(block);
    }
}

fn hammered(knobs: impl FnOnce(&mut Config)) -> Zone<Anonymous> {
    zone_of(HUGE_BLOCKS, fast, knobs)
}

fn zone_of(huge: usize, clock: fn() -> u64, knobs: impl FnOnce(&mut Config)) -> Zone<Anonymous> {
    let backing = Anonymous::reserve(huge * HUGE).unwrap();
    let zone = Zone::with_clock(backing, &config(huge, knobs), clock).unwrap();
    zone.waker.is_the_tests();
    zone
}

/// Workers on `workers`, a scrubber on `scrubber`, until scrubd has cleared something and had to give up a
/// block, or for all rounds. Returns how often it did.
fn hammer(zone: &Zone<Anonymous>, workers: &CpuMask, scrubber: &CpuMask, mood: Throttle) -> u64 {
    hammer_with(zone, workers, scrubber, mood, (&SIZES, REQUESTS))
}

fn hammer_with(
    zone: &Zone<Anonymous>,
    workers: &CpuMask,
    scrubber: &CpuMask,
    mood: Throttle,
    (sizes, requests): (&[u32], u32),
) -> u64 {
    let before = affinity();
    let mut aborts = 0;
    for round in 1..=ROUNDS {
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                set_affinity(scrubber).unwrap();
                // As scrubd runs; and, should the machine have no idle moment, as others do.
                if round % 2 == 1 {
                    thread::become_idle_class().unwrap();
                }
                let mut scrubd =
                    Scrubber::new(FakeThread, zone.pool.clock.now_ns(), Ablation::default());
                while !stop.load(Relaxed) {
                    scrubd.step(zone, mood);
                }
            });
            let all: Vec<_> = (1..=WORKERS)
                .map(|tag| {
                    scope.spawn(move || {
                        set_affinity(workers).unwrap();
                        work(zone, sizes, requests, tag, round << 8 | u32::from(tag));
                    })
                })
                .collect();
            let ended: Vec<_> = all.into_iter().map(|worker| worker.join()).collect();
            stop.store(true, Relaxed);
            ended.into_iter().for_each(|end| end.unwrap());
        });
        // SAFETY: all threads have ended.
        assert_eq!(unsafe { zone.check() }, Ok(()));
        let now = zone.snapshot();
        assert_eq!(now.gauges.allocated_bytes, 0, "every page came back");
        let free: u64 = [
            now.gauges.resident_zero_bytes,
            now.gauges.resident_dirty_bytes,
            now.gauges.absent_bytes,
        ]
        .iter()
        .sum();
        assert_eq!(free, (zone.pages() as usize * PAGE) as u64);
        aborts = now.get(Counter::Aborts);
        // On a busy machine the first block may be its only one, and lost.
        if aborts > 0 && now.get(Counter::ScrubbedBytes) > 0 {
            break;
        }
    }
    set_affinity(&before).unwrap();
    aborts
}

/// The CPUs that this test may use, the first two of them.
fn two_cpus() -> (CpuMask, CpuMask) {
    let allowed = affinity();
    let mut cpus = (0..thread::cpu_count()).filter(|&cpu| allowed.contains(cpu));
    let first = cpus.next().unwrap();
    (CpuMask::only(first), CpuMask::only(cpus.next().unwrap_or(first)))
}

#[test]
fn a_scrubber_on_the_same_cpu_never_writes_into_what_was_handed_out() {
    let (one, _) = two_cpus();
    let zone = hammered(|_| {});
    let aborts = hammer(&zone, &one, &one, Throttle::Normal);
    assert!(aborts > 0, "a preempted scrubber loses its block");
}

#[test]
fn a_scrubber_on_another_cpu_never_writes_into_what_was_handed_out() {
    let (one, other) = two_cpus();
    let zone = hammered(|config| config.engine = EngineChoice::Named("memset"));
    hammer(&zone, &one, &other, Throttle::Normal);
    let zone = hammered(|_| {});
    hammer(&zone, &one, &other, Throttle::Normal);
    assert!(zone.snapshot().get(Counter::ScrubbedBytes) > 0, "it did scrub");
}

#[test]
fn threads_on_all_cpus_share_a_zone_that_is_given_back_under_their_feet() {
    let all = affinity();
    let zone = hammered(|_| {});
    hammer(&zone, &all, &all, Throttle::Pressed);
    assert!(zone.snapshot().get(Counter::ReleasedBytes) > 0);
}

#[test]
fn threads_reach_for_address_space_that_another_thread_unmaps() {
    let backing = Anonymous::growing(4 * HUGE_BLOCKS * HUGE, 2 * HUGE).unwrap();
    let zone = Zone::with_clock(backing, &config(4 * HUGE_BLOCKS, |_| {}), fast).unwrap();
    zone.waker.is_the_tests();
    let (stop, mapped) = (AtomicBool::new(false), || zone.snapshot().gauges.zone_bytes);
    let first = mapped();
    let (mut shrunk, zone) = (0, &zone);
    let mut trim = || {
        zone.reclaim();
        let before = mapped();
        zone.pool.trim();
        shrunk += u32::from(mapped() < before);
    };
    std::thread::scope(|scope| {
        let all: Vec<_> = (1..=WORKERS)
            .map(|tag| scope.spawn(move || work(zone, &LARGE, REQUESTS, tag, u32::from(tag))))
            .collect();
        scope.spawn(|| {
            let ended: Vec<_> = all.into_iter().map(|worker| worker.join()).collect();
            stop.store(true, Relaxed);
            ended.into_iter().for_each(|end| end.unwrap());
        });
        while !stop.load(Relaxed) {
            trim();
        }
    });
    // On a busy machine the threads may have run while this one did not.
    trim();
    assert!(shrunk > 0 && mapped() <= 2 * first, "{shrunk} times, {} bytes left", mapped());
    // SAFETY: all threads have ended.
    assert_eq!(unsafe { zone.check() }, Ok(()));
    assert_eq!(zone.snapshot().gauges.allocated_bytes, 0, "every page came back");
}
