//! Every engine of this machine clears its range and nothing else; which are found by which name.

use super::*;
use prezero_sys::memory::Reservation;

const PAGE: usize = 4096;
const PATTERN: u8 = 0xa5;

/// Index of the first byte in `from..to` that is not `byte`.
fn first_not(range: &Reservation, from: usize, to: usize, byte: u8) -> Option<usize> {
    // SAFETY: within the range, which is the test's own.
    (from..to).find(|&i| unsafe { range.base().add(i).read() } != byte)
}

#[test]
fn clear_zeroes_its_range_and_nothing_else() {
    for engine in engines() {
        for pages in [1, 2, 3, 8, 17, 512] {
            let len = pages * PAGE;
            let range = Reservation::new(len + 2 * PAGE, PAGE).unwrap();
            // SAFETY: mapped, and the test's own.
            unsafe { range.base().write_bytes(PATTERN, range.len()) };
            // SAFETY: the range is ours and one page larger on both sides.
            unsafe { engine.clear(range.base().add(PAGE), len) };
            let name = engine.name();
            assert_eq!(first_not(&range, 0, PAGE, PATTERN), None, "{name} before");
            assert_eq!(first_not(&range, PAGE, PAGE + len, 0), None, "{name} {pages}");
            assert_eq!(first_not(&range, PAGE + len, range.len(), PATTERN), None, "{name} after");
        }
    }
}

#[test]
fn preferred_engines_do_what_their_kind_says() {
    assert_eq!(preferred(Cache::Cached).cache(), Cache::Cached);
    let some_bypasses = engines().any(|engine| engine.cache() == Cache::Bypassing);
    assert_eq!(preferred(Cache::Bypassing).cache() == Cache::Bypassing, some_bypasses);
}

#[test]
fn names_are_unique_and_an_unknown_one_is_none() {
    for engine in engines() {
        assert_eq!(engines().filter(|other| other.name() == engine.name()).count(), 1);
        assert_eq!(engine_named(engine.name()), Some(engine.name()));
    }
    assert!(by_name("no such engine").is_none());
}

struct Fake(&'static str);

// SAFETY: writes zeroes to exactly the range.
unsafe impl ClearEngine for Fake {
    fn name(&self) -> &'static str {
        self.0
    }
    fn cache(&self) -> Cache {
        Cache::Cached
    }
    unsafe fn clear(&self, dst: NonNull<u8>, len: usize) {
        // SAFETY: the caller owns the range.
        unsafe { dst.write_bytes(0, len) };
    }
}

#[test]
fn a_driver_is_registered_once_and_preferred_by_zones_that_come_after() {
    // SAFETY: any CPU writes bytes.
    unsafe {
        assert_eq!(register(&Fake("driver")), Ok(()));
        assert_eq!(register(&Fake("driver")), Ok(()));
        assert_eq!(register(&Fake("another")), Err(RegistryFull));
    }
    assert_eq!(engines().filter(|engine| engine.name() == "driver").count(), 1);
    assert_eq!(preferred(Cache::Cached).name(), "driver");
}
