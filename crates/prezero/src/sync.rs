//! Atomics and metadata arrays: the machine's own, or loom's when a model checks us.

#[cfg(loom)]
pub(crate) use loom::sync::atomic::{AtomicU32, AtomicU64};
#[cfg(not(loom))]
pub(crate) use std::sync::atomic::{AtomicU32, AtomicU64};

pub(crate) use std::sync::atomic::Ordering;

#[cfg(not(loom))]
pub(crate) use prezero_sys::meta::Meta;

/// One pause of a short spin.
pub(crate) fn spin() {
    #[cfg(loom)]
    loom::thread::yield_now();
    #[cfg(not(loom))]
    std::hint::spin_loop();
}

/// Orders what this thread wrote before what it reads next. Loom has no sequentially consistent accesses, and needs to
/// be told; elsewhere the accesses are so.
#[inline]
pub(crate) fn settle() {
    #[cfg(loom)]
    loom::sync::atomic::fence(Ordering::SeqCst);
}

/// Loom's atomics cannot live in raw mappings; a boxed slice stands in.
#[cfg(loom)]
pub(crate) struct Meta<T>(Box<[T]>);

#[cfg(loom)]
impl<T: Default> Meta<T> {
    pub(crate) fn new(n: usize) -> Result<Self, prezero_sys::memory::Errno> {
        Ok(Meta((0..n).map(|_| T::default()).collect()))
    }
}

#[cfg(loom)]
impl<T> std::ops::Deref for Meta<T> {
    type Target = [T];
    fn deref(&self) -> &[T] {
        &self.0
    }
}
