//! A word for each CPU that its threads take and put with plain instructions.
//!
//! A compare-and-swap costs 5 ns even on a line that nobody else wants; a restartable
//! sequence (see [`rseq`]) costs one store more than the work itself. Inside
//! one, a thread is alone on its CPU: it reads the word, decides, and commits by one store.
//!
//! Others get at a word without the CPU's threads taking notice, in three steps that need
//! no lock: [`mark`](Hand::mark) it by compare-and-swap, so that no section that begins
//! from now on touches it; [`fence`], after which
//! none that began earlier is under way; [`collect`](Hand::collect) it, if it still bears
//! the mark. Each has a token of his own, and the last to mark a word has it: a collector
//! that vanishes (its thread may be kept from its CPU for long) bars nobody's way.
//!
//! A thread's last section stays written down in its area, for the kernel to look at: code
//! that uses hands must never be unmapped.
//!
//! An empty hand is 0. Else bits 16 to 47 of a word are those of the payload, an address at
//! a multiple of 64 KiB; bits 0 to 14 are the tag, and the top bit is the mark. A marked
//! word has its token in the bits 0 to 15 and 48 to 62. An address, not a number: in a loop
//! of malloc and free each waits for what the other stored, so that what lies between is
//! what a pair costs (3.7 ns with an address, 4.5 with a number that it is made from).

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use super::rseq;
use crate::memory::meta::Plain;

/// See the module. All-zero bytes are an empty hand.
#[repr(transparent)]
#[derive(Debug, Default)]
pub struct Hand(AtomicU64);

// SAFETY: an atomic, for which zero bytes are a valid value, without a destructor.
unsafe impl Plain for Hand {}

const TAG: u32 = (1 << 15) - 1;
const TAG_BITS: usize = (1 << 16) - 1;
const PAYLOAD: u64 = ((1 << 32) - 1) << 16;
const MARK: u64 = 1 << 63;

/// Where a thread's `struct rseq` lies from its thread pointer, and whether hands may be used.
static AREA: Area = Area::unknown();
/// The same, for who puts something in: unknown as soon as nobody else could take it out.
static AREA_TO_PUT: Area = Area::unknown();

/// An offset that is known or not, and how many have asked that it be not used: one word, so
/// that who learns it and who bars it cannot miss each other. Above 0 if it may be used.
struct Area(AtomicU64);

impl Area {
    const fn unknown() -> Area {
        Area(AtomicU64::new(0))
    }

    /// What is added to an offset, so that it is above 0 and the word serves as it is: the
    /// sections take it off in the displacement, which costs nothing.
    const BIAS: isize = 1 << 30;
    /// One who bars it; above the offset, below the sign.
    const BAR: u64 = 1 << 32;
    const BARRED: u64 = 1 << 63;

    /// The offset and [`BIAS`](Self::BIAS), if it may be used.
    #[inline(always)]
    fn usable(&self) -> Option<isize> {
        let word = self.0.load(Ordering::Relaxed);
        (word as i64 > 0).then_some(word as isize)
    }

    /// From now on this is the offset; `None`: it is not to be used any more.
    fn learn(&self, offset: Option<i32>) {
        let low = Self::BAR - 1;
        let biased = offset.map_or(0, |offset| (offset as isize + Self::BIAS) as u64);
        self.change(|word| (word & !low) | biased);
    }

    fn bar(&self) {
        self.change(|word| (word + Self::BAR) | Self::BARRED);
    }

    fn unbar(&self) {
        self.change(|word| match (word & !Self::BARRED) - Self::BAR {
            free if free < Self::BAR => free,
            barred => barred | Self::BARRED,
        });
    }

    fn is_barred(&self) -> bool {
        self.0.load(Ordering::Relaxed) & Self::BARRED != 0
    }

    fn change(&self, to: impl Fn(u64) -> u64) {
        let _ = self.0.fetch_update(Ordering::AcqRel, Ordering::Relaxed, |word| Some(to(word)));
    }
}

/// Nobody takes from a hand nor puts into one until [`unbar`]; what is in one stays.
///
/// For `vfork`: its child has its parent's thread-local storage, the sequence area included,
/// and the kernel keeps none for it. It would be the owner of the hands of the CPU that its
/// parent stopped on, beside that CPU's own threads.
pub fn bar() {
    AREA.bar();
    AREA_TO_PUT.bar();
}

/// Ends one [`bar`].
pub fn unbar() {
    AREA.unbar();
    AREA_TO_PUT.unbar();
}

/// Whether somebody bars hands.
pub fn is_barred() -> bool {
    AREA.is_barred()
}

/// Puts hands in use, if that can be: false where glibc registers no restartable sequences
/// (before 2.35, under an emulator or a filter), or the kernel has no membarrier for them
/// (before 5.10), or no section is written for this architecture. The first that asks for either
/// asks the dynamic linker, which locks and may allocate.
pub fn enable() -> bool {
    #[cfg(target_arch = "x86_64")]
    if rseq::membarrier_register()
        && let Some(offset) = rseq::x86_64::offset_of_libc()
        && let Ok(near) = i32::try_from(offset)
        && offset.unsigned_abs() < Area::BIAS as usize
    {
        AREA.learn(Some(near));
        AREA_TO_PUT.learn(Some(near));
        return true;
    }
    false
}

/// The CPU this thread runs on at this moment; a hint, as it may be moved. Out of its own
/// sequence area where that is known: glibc's function is a page of code more, which a program
/// that comes back from a pause finds nowhere near.
#[inline(always)]
pub fn current_cpu() -> usize {
    #[cfg(target_arch = "x86_64")]
    if let Some(area) = AREA.usable() {
        // SAFETY: hands are in use, so that is where this thread's area lies.
        let cpu = unsafe { sections::cpu(area) };
        if cpu >= 0 {
            return cpu as usize;
        }
    }
    crate::thread::current_cpu()
}

/// The membarrier between [`mark`](Hand::mark) and [`collect`](Hand::collect). False if the
/// kernel refuses, as it may from some day on under a filter: then nothing is put into a
/// hand any more, and what is in one waits for its CPU's own threads.
pub fn fence() -> bool {
    let done = rseq::membarrier_rseq();
    if !done {
        AREA_TO_PUT.learn(None);
    }
    done
}

/// What a hand holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Held(u64);

impl Held {
    /// A payload, which is not 0, a multiple of 2^16 and below 2^48; and the low 15 bits of
    /// a tag.
    #[inline(always)]
    pub const fn new(payload: usize, tag: u32) -> Held {
        Held(payload as u64 | (tag & TAG) as u64)
    }

    /// The payload.
    #[inline(always)]
    pub const fn payload(self) -> usize {
        (self.0 & PAYLOAD) as usize
    }

    /// The tag, 15 bits; `None` if the word is marked.
    #[inline]
    pub const fn tag(self) -> Option<u32> {
        if self.0 & MARK != 0 { None } else { Some(self.0 as u32 & TAG) }
    }
}

/// What a collector of marked words goes by: his own among 2^31. They come round, but each
/// is worth a fence, so who is kept between mark and collect for hours would have to find
/// the very token that he left.
#[derive(Clone, Copy, Debug)]
pub struct Token(u32);

impl Token {
    /// The next.
    pub fn next() -> Token {
        static LAST: AtomicU32 = AtomicU32::new(0);
        Token(LAST.fetch_add(1, Ordering::Relaxed) & (u32::MAX >> 1))
    }

    /// The word that holds `payload` and is marked with this.
    const fn marks(self, payload: usize) -> u64 {
        let (high, low) = ((self.0 >> 16) as u64, (self.0 & 0xffff) as u64);
        MARK | high << 48 | low | payload as u64
    }
}

impl Hand {
    /// What it holds, marked or not.
    pub fn peek(&self) -> Option<Held> {
        let word = self.0.load(Ordering::Acquire);
        (word != 0).then_some(Held(word))
    }

    /// Marks a hand that holds exactly `held`, also where somebody else has marked it: what
    /// it holds is not his any more. True if it did.
    pub fn mark(&self, held: Held, token: Token) -> bool {
        let marked = token.marks(held.payload());
        self.0.compare_exchange(held.0, marked, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// Takes what was marked with `token`. To be called after the [`fence`].
    pub fn collect(&self, token: Token) -> Option<usize> {
        self.end(token, 0)
    }

    /// Lets go of what was marked with `token`, because there was no fence. The tag is lost:
    /// it is the token's now.
    pub fn unmark(&self, token: Token) {
        let held = Held(self.0.load(Ordering::Relaxed));
        self.end(token, Held::new(held.payload(), token.0).0);
    }

    fn end(&self, token: Token, to: u64) -> Option<usize> {
        let word = self.0.load(Ordering::Acquire);
        let payload = Held(word).payload();
        let ours = word == token.marks(payload);
        let taken =
            || self.0.compare_exchange(word, to, Ordering::AcqRel, Ordering::Relaxed).is_ok();
        (ours && taken()).then_some(payload)
    }

    /// Takes what it holds, marked or not.
    ///
    /// # Safety
    /// No other thread of this process runs: it is the child of a fork.
    pub unsafe fn take_alone(&self) -> Option<Held> {
        let word = self.0.load(Ordering::Acquire);
        if word != 0 {
            self.0.store(0, Ordering::Release); // a page that is only read need not be copied
        }
        (word != 0).then_some(Held(word))
    }
}

/// Whether anything may be put into a row of hands: two words that a section reads as one.
#[repr(C, align(8))]
#[derive(Debug, Default)]
pub struct Gate {
    /// At this moment: above what [`put`] is told, not.
    pub word: AtomicU32,
    /// By another value than 0: never again.
    pub shut: AtomicU32,
}

/// A row of hands, some in what each CPU has of its own, a `C`, and what decides whether they
/// take anything.
///
/// # Safety
/// These lie so many bytes from the beginning of a value: at `CPUS` a `Meta<C>`, at
/// `GATE` a [`Gate`]. And from the beginning of a `C`: at `HANDS` a `[Hand; COUNT]`, at
/// `PUTS` a `[AtomicU64; COUNT]`, and at `LAST` an `AtomicU64` that nobody else writes to.
pub unsafe trait Row<C: Plain>: Sync {
    /// Where what all CPUs have is known.
    const CPUS: usize;
    /// Where it stands whether anything may be put in.
    const GATE: usize;
    /// Where a CPU's first hand is.
    const HANDS: usize;
    /// How many it has.
    const COUNT: usize;
    /// Where the number of the hand is that something was last put into.
    const LAST: usize;
    /// Where the counters are of what was put into each. A counter may miss one: it is
    /// added to after the section, maybe on another CPU by then.
    const PUTS: usize;
}

/// Takes what the hand number `which` of this thread's CPU holds: the payload. `None` if the
/// hand is empty or marked, or not in use, or there is no such hand.
#[inline(always)]
pub fn take<C: Plain, R: Row<C>>(row: &R, which: usize) -> Option<usize> {
    let area = AREA.usable()?;
    if which >= R::COUNT {
        return None;
    }
    // SAFETY: hands are in use, so that is where this thread's area lies; there is such a
    // hand.
    let (word, _) = unsafe { sections::take::<C, R>(row, which, area) };
    // Above the payload there is nothing in a word without a mark.
    (word > 0).then(|| sections::payload(word))
}

/// As [`take`], with the tag, and says what CPU's hand it was.
#[inline]
pub fn take_of<C: Plain, R: Row<C>>(row: &R, which: usize) -> Option<(Held, &C)> {
    let area = AREA.usable()?;
    if which >= R::COUNT {
        return None;
    }
    // SAFETY: as in `take`.
    let (word, cpu) = unsafe { sections::take::<C, R>(row, which, area) };
    // SAFETY: a word that is not 0 was read from an element, at this address.
    (word > 0).then(|| (Held(word as u64), unsafe { &*cpu }))
}

/// Puts `held` into the hand number `which` of this thread's CPU, if that is empty, the row
/// takes anything at all, and its gate's word is at most `MOST` at that moment. True if it did.
#[inline(always)]
pub fn put<C: Plain, R: Row<C>, const MOST: u32>(row: &R, which: usize, held: Held) -> bool {
    match AREA_TO_PUT.usable() {
        // SAFETY: hands are in use, so that is where this thread's area lies; there is such
        // a hand.
        Some(area) if which < R::COUNT => unsafe {
            sections::put::<C, R, MOST>(row, which, held, area)
        },
        _ => false,
    }
}

#[cfg(target_arch = "x86_64")]
mod sections;
/// No section is written for this architecture, and hands are never in use.
#[cfg(not(target_arch = "x86_64"))]
mod sections {
    use super::{Held, Plain, Row};

    pub(super) unsafe fn take<C: Plain, R: Row<C>>(_: &R, _: usize, _: isize) -> (i64, *const C) {
        (0, std::ptr::null())
    }

    pub(super) fn payload(word: i64) -> usize {
        word as usize & !super::TAG_BITS
    }

    pub(super) unsafe fn put<C: Plain, R: Row<C>, const MOST: u32>(
        _: &R,
        _: usize,
        _: Held,
        _: isize,
    ) -> bool {
        false
    }
}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests;
