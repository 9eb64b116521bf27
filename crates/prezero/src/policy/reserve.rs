//! Free pages that stay dirty for plain requests, because plain requests had to take zero pages.
//!
//! A reserve may be too large later. So each request for zero takes off a part of its size, and twice as much after
//! each burst that passes without waste. If there is waste again the next attempt begins with half of that part. A
//! reserve that stays right costs less and less, and a wrong one is gone after a few bursts. Reads no clock.

/// See the module.
#[derive(Clone, Copy)]
pub(crate) struct Reserve {
    pub(crate) pages: u64,
    /// Requests for zero take off one page in so many, and took when the attempt began.
    doubt: u64,
    began: u64,
}

impl Reserve {
    /// The part of a request that it takes off the reserve, as a divisor: at first, and after every
    /// attempt failed.
    /// Moved by: `bench waste --only mixed,adverse`.
    const LEAST: u64 = 8;
    const MOST: u64 = 1024;

    pub(crate) fn new() -> Reserve {
        Reserve { pages: 0, doubt: 1, began: Reserve::LEAST }
    }

    /// Plain requests had to take so many zero pages although `kept` were left for them.
    pub(crate) fn was_short(&mut self, wasted: u64, kept: u64) {
        self.pages = self.pages.max(kept) + wasted;
        if self.doubt < self.began {
            self.began = (2 * self.began).min(Reserve::MOST);
        }
        self.doubt = self.began;
    }

    /// So many pages were asked for as zero, and nothing went wrong.
    pub(crate) fn was_enough(&mut self, asked: u64) {
        self.pages = self.pages.saturating_sub(asked.div_ceil(self.doubt));
    }

    /// A burst is over.
    pub(crate) fn turn(&mut self) {
        self.doubt = (self.doubt / 2).max(1);
        if self.pages == 0 {
            self.began = (self.began / 2).max(Reserve::LEAST);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bursts of `asked` pages each until nothing is left.
    fn bursts_until_gone(reserve: &mut Reserve, asked: u64) -> u32 {
        let mut bursts = 0;
        while reserve.pages > 0 {
            reserve.was_enough(asked);
            reserve.turn();
            bursts += 1;
        }
        bursts
    }

    #[test]
    fn it_is_gone_some_bursts_after_the_last_waste_and_later_each_time_it_was_right() {
        let mut reserve = Reserve::new();
        let mut last = 0;
        for _ in 0..4 {
            reserve.was_short(64, 0);
            let doubt = reserve.doubt;
            reserve.was_enough(8);
            reserve.turn();
            reserve.was_short(64, 0);
            assert_eq!(reserve.doubt, 2 * doubt, "it was wrong to try so soon");
            let bursts = bursts_until_gone(&mut reserve, 64);
            assert!(bursts >= last, "{bursts} bursts, {last} before");
            last = bursts;
        }
        assert!((3..16).contains(&last), "{last} bursts");
    }

    #[test]
    fn earlier_zeroes_count_and_requests_before_a_burst_ends_take_little() {
        let mut reserve = Reserve::new();
        reserve.was_short(10, 100);
        assert_eq!(reserve.pages, 110);
        reserve.was_enough(Reserve::LEAST);
        assert_eq!(reserve.pages, 109);
        reserve.was_enough(0);
        assert_eq!(reserve.pages, 109);
    }
}
