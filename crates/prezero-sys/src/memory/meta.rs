//! Arrays of records: zero-filled, each in a mapping of its own whose untouched part costs nothing.
//!
//! They never move, grow or shrink, and go with their owner.

use std::marker::PhantomData;
use std::ops::Deref;
use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering};

use super::reservation::{Errno, GRAIN, Reservation};

/// What a [`Meta`] may hold.
///
/// # Safety
/// A value of all-zero bytes is valid, and dropping one does nothing. Anything that is
/// shared through `Meta` must also be `Sync`; atomics are, and structs of them.
pub unsafe trait Zeroable: Sync {}

// SAFETY: zero is a valid integer, and integers have no drop.
unsafe impl Zeroable for AtomicU8 {}
// SAFETY: as above.
unsafe impl Zeroable for AtomicU16 {}
// SAFETY: as above.
unsafe impl Zeroable for AtomicU32 {}
// SAFETY: as above.
unsafe impl Zeroable for AtomicU64 {}

/// A zero-filled array in an anonymous mapping of its own; untouched pages cost nothing.
#[derive(Debug)]
pub struct Meta<T: Zeroable> {
    memory: Reservation,
    n: usize,
    holds: PhantomData<[T]>,
}

impl<T: Zeroable> Meta<T> {
    const FITS: () = assert!(size_of::<T>() > 0 && align_of::<T>() <= GRAIN);

    /// `n` elements, all zero bytes; the first is page aligned.
    ///
    /// # Errors
    /// `NOMEM` when the address space does not hold them.
    pub fn new(n: usize) -> Result<Meta<T>, Errno> {
        const { Self::FITS };
        let bytes = n.checked_mul(size_of::<T>()).ok_or(Errno::NOMEM)?;
        let len = bytes.max(1).checked_next_multiple_of(GRAIN).ok_or(Errno::NOMEM)?;
        let memory = Reservation::new(len, GRAIN)?;
        // A core dump would have them in full length, touched or not. An old kernel refuses it.
        let _ = memory.no_dump(0, len);
        Ok(Meta { memory, n, holds: PhantomData })
    }
}

impl<T: Zeroable> Deref for Meta<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        // SAFETY: the mapping holds n elements, is aligned (`FITS`), readable and
        // writable for as long as `self` lives, and is never released or replaced; its
        // zero bytes are valid elements (`Zeroable`), which only T's own methods change.
        unsafe { std::slice::from_raw_parts(self.memory.base().cast().as_ptr(), self.n) }
    }
}

/// A copy of a text that stays as long as the process, in pages of its own.
///
/// # Errors
/// As for [`Meta::new`].
pub fn keep(text: &str) -> Result<&'static str, Errno> {
    let kept: Meta<AtomicU8> = Meta::new(text.len())?;
    for (to, from) in kept.iter().zip(text.bytes()) {
        to.store(from, Ordering::Relaxed);
    }
    let first = kept.memory.base().as_ptr();
    std::mem::forget(kept);
    // SAFETY: the bytes of a text, in a mapping that is never undone and that no other code knows.
    Ok(unsafe { std::str::from_utf8_unchecked(std::slice::from_raw_parts(first, text.len())) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::reservation::tests::{resident, small_pages};
    use std::sync::atomic::Ordering::Relaxed;

    const MIB: usize = 1 << 20;

    #[test]
    fn meta_starts_zero_and_keeps_what_is_stored() {
        let meta = Meta::<AtomicU64>::new(100_000).unwrap();
        assert_eq!(meta.len(), 100_000);
        assert!(meta.iter().all(|word| word.load(Relaxed) == 0));
        meta[99_999].store(u64::MAX, Relaxed);
        assert_eq!(meta[99_999].load(Relaxed), u64::MAX);
        assert_eq!(meta[99_998].load(Relaxed), 0);
    }

    #[test]
    fn meta_untouched_is_not_resident() {
        let meta = Meta::<AtomicU8>::new(8 * MIB).unwrap();
        small_pages(&meta.memory);
        meta[0].store(1, Relaxed);
        assert_eq!(resident(&meta.memory, GRAIN, 4 * GRAIN), 0);
    }

    #[test]
    fn text_is_kept_as_it_was() {
        for text in ["", "a", "/tmp/\u{e9}.json", &"x".repeat(5000)] {
            assert_eq!(keep(text).unwrap(), text);
        }
    }

    #[test]
    fn meta_of_nothing_is_empty_and_of_too_much_is_refused() {
        assert!(Meta::<AtomicU16>::new(0).unwrap().is_empty());
        assert_eq!(Meta::<AtomicU32>::new(usize::MAX / 2).unwrap_err(), Errno::NOMEM);
    }
}
