//! The engines in use, and their measurements.

use std::sync::atomic::Ordering::{Acquire, Relaxed, SeqCst};
use std::sync::atomic::{AtomicPtr, AtomicU64};

use crate::clear::Engines;
use crate::clear::choice::Choice;

/// See the module.
pub(crate) struct Clearing {
    /// What the CPU's features promise, until scrubd has measured.
    guess: Choice,
    /// What scrubd measured; a pointer and no lock, which a fork might catch half taken.
    measured: AtomicPtr<Choice>,
    /// What the first touch of a page takes, ns as a float's bits; 0 until scrubd has measured.
    fault_ns: AtomicU64,
}

impl Clearing {
    /// Before anything is measured: with the engine of this name alone, or as the CPU's features promise.
    pub(crate) fn new(engine: Option<&str>) -> Clearing {
        let engine = engine.and_then(crate::clear::by_name);
        let engines = engine.map_or_else(Engines::uncalibrated, Engines::only);
        Clearing {
            guess: Choice::unmeasured(engines, prezero_sys::process::private_cache()),
            measured: AtomicPtr::new(std::ptr::null_mut()),
            fault_ns: AtomicU64::new(0),
        }
    }

    /// The engines in use, and what each is for.
    #[allow(unsafe_code)]
    #[inline]
    pub(crate) fn choice(&self) -> &Choice {
        // SAFETY: null, or a choice that is never dropped, by `use_choice`.
        unsafe { self.measured.load(Acquire).as_ref() }.unwrap_or(&self.guess)
    }

    /// What the first touch of a page takes, ns; 0 until it is measured.
    pub(crate) fn fault_ns(&self) -> f64 {
        f64::from_bits(self.fault_ns.load(Relaxed))
    }

    /// Notes what the first touch of a page took.
    pub(crate) fn note_fault_ns(&self, ns: f64) {
        self.fault_ns.store(ns.to_bits(), Relaxed);
    }

    /// Whether the machine is measured.
    pub(crate) fn is_measured(&self) -> bool {
        !self.measured.load(Acquire).is_null()
    }

    /// Puts a choice in use that is never written again.
    pub(crate) fn use_choice(&self, choice: &'static Choice) {
        self.measured.store(std::ptr::from_ref(choice).cast_mut(), SeqCst);
    }
}
