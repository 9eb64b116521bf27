//! How large the recent bursts of a demand were.
//!
//! A stock as large as the largest recent burst serves the next one whole. The caller says what
//! was asked for since the beginning, when a burst ends and when a window has passed; this
//! module reads no clock.

/// The memory of a burst loses one part in this many each window. The caller sets the window so
/// that the fade costs less than a stock that nothing asks for.
/// Moved by: tests of `governor`, `bench waste`.
pub const FADE: u64 = 32;
/// The excess of the largest burst over the present one loses one part in this many each burst. Two
/// bursts that were taken for one, because nothing looked between them, are soon told apart.
/// Moved by: `bench waste --only mixed`.
const SETTLE: u64 = 8;

/// The bursts of one demand.
#[derive(Clone, Copy, Default, Debug)]
pub struct Bursts {
    /// Demand when the present burst began.
    start: u64,
    largest: u64,
    /// Whether a burst of this window was as large as the largest.
    reached: bool,
}

impl Bursts {
    /// What the present burst asked for, given what was asked for since the beginning.
    pub fn arrived(&self, total: u64) -> u64 {
        total.saturating_sub(self.start)
    }

    /// The largest recent burst, the present one included.
    pub fn largest(&self, total: u64) -> u64 {
        self.largest.max(self.arrived(total))
    }

    /// Ends the present burst.
    pub fn end(&mut self, total: u64) {
        let arrived = self.arrived(total);
        if arrived > 0 {
            let excess = self.largest.saturating_sub(arrived);
            self.largest = self.largest.max(arrived) - excess.div_ceil(SETTLE);
            self.reached |= arrived >= self.largest;
        }
        self.start = total;
    }

    /// A window has passed: a part of the past is forgotten. The largest burst stays if one of this
    /// window was as large: a stock that lacks a few pages of a block misses the block.
    pub fn fade(&mut self) {
        if !std::mem::take(&mut self.reached) {
            self.largest -= self.largest.div_ceil(FADE);
        }
    }
}
