//! What policy is shown.

use crate::class::BANDS;

/// What the governor is shown: sums over all CPUs, since the zone began.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sample {
    /// Pages asked for as zero that a stock could have served, by band.
    pub(crate) demand: [u64; BANDS],
    /// Pages of these that were found zero, by band.
    pub(crate) hits: [u64; BANDS],
    /// Pages that are free and resident.
    pub(crate) free: u64,
    /// Pages given back that had been handed out zero.
    pub(crate) returned: u64,
    /// Pages of ZERO requests that were served absent.
    pub(crate) absent: u64,
    /// Zero pages that were lost: to plain requests, or to the kernel.
    pub(crate) lost: u64,
    /// Pages that were made zero, the CPU time that scrubbing took, ns, and that looking for what to scrub took.
    pub(crate) scrubbed: u64,
    pub(crate) spent_ns: u64,
    pub(crate) look_ns: u64,
    /// What a request pays for a page that must be cleared, ns, as measured.
    pub(crate) clear_ns: f64,
}

impl Default for Sample {
    fn default() -> Sample {
        Sample {
            demand: [0; BANDS],
            hits: [0; BANDS],
            free: 0,
            returned: 0,
            absent: 0,
            lost: 0,
            scrubbed: 0,
            spent_ns: 0,
            look_ns: 0,
            clear_ns: 0.0,
        }
    }
}
