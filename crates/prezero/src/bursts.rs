//! What comes in bursts, and how large they were of late: a stock as large as the largest serves the
//! next one whole. Told what was asked for since the beginning, when a burst ends and when a window
//! has passed; reads no clock.

/// Of its memory of a burst the governor loses one part in this many each window: half in
/// two seconds. Scrubbing a burst's worth takes a fraction of that; the stock itself stays.
pub(crate) const FADE: u64 = 32;
/// Of what its largest burst was above the present one a band forgets one part in this many:
/// half in five bursts. Two bursts that were taken for one, because scrubd could not look
/// between them, are soon told apart.
const SETTLE: u64 = 8;

/// The bursts of one band.
#[doc(hidden)]
#[derive(Clone, Copy, Default, Debug)]
pub struct Bursts {
    /// Demand when the present burst began.
    start: u64,
    largest: u64,
    /// Whether a burst of this window was as large.
    reached: bool,
    /// Pages asked for of late, fading as the bursts do.
    rate: u64,
}

impl Bursts {
    /// What the present burst asked for, given what was asked for since the beginning.
    pub fn arrived(&self, total: u64) -> u64 {
        total.saturating_sub(self.start)
    }

    /// The largest burst of late, the present one included.
    pub fn largest(&self, total: u64) -> u64 {
        self.largest.max(self.arrived(total))
    }

    /// What was asked for of late, the present burst included.
    pub fn lately(&self, total: u64) -> u64 {
        self.rate + self.arrived(total)
    }

    /// Ends the present burst.
    pub fn end(&mut self, total: u64) {
        let arrived = self.arrived(total);
        if arrived > 0 {
            let excess = self.largest.saturating_sub(arrived);
            self.largest = self.largest.max(arrived) - excess.div_ceil(SETTLE);
            self.reached |= arrived >= self.largest;
        }
        self.rate += arrived;
        self.start = total;
    }

    /// A window has passed: a part of the past is forgotten. What was as large just now is not
    /// past: a stock that lacks a few pages of a block misses it.
    pub fn fade(&mut self) {
        if !std::mem::take(&mut self.reached) {
            self.largest -= self.largest.div_ceil(FADE);
        }
        self.rate -= self.rate.div_ceil(FADE);
    }
}
