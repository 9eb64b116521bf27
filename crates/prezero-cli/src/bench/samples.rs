//! The arithmetic of samples: medians, spread, geometric mean.

use serde::{Deserialize, Serialize};

/// Samples in one unit, and where they lie.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Spread {
    /// Half lie below.
    pub median: f64,
    /// A tenth lies below.
    pub p10: f64,
    /// A tenth lies above.
    pub p90: f64,
    /// Each, in the order taken.
    pub samples: Vec<f64>,
}

impl Spread {
    /// Of at least one sample.
    pub fn of(samples: Vec<f64>) -> Option<Spread> {
        let mut sorted = samples.clone();
        sorted.sort_by(f64::total_cmp);
        let at = |share| quantile(&sorted, share);
        Some(Spread { median: at(0.5)?, p10: at(0.1)?, p90: at(0.9)?, samples })
    }

    /// Adds the samples of another.
    pub fn add(&mut self, more: Spread) {
        let samples = [std::mem::take(&mut self.samples), more.samples].concat();
        if let Some(all) = Spread::of(samples) {
            *self = all;
        }
    }
}

/// How much one median is above another, where the samples were taken in pairs.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct Change {
    /// The medians' ratio, less one.
    pub change: f64,
    /// What it may be off by, either way: between it less this and it more this lies, with some
    /// 95 % confidence, the median of the pairs' ratios. By their ranks, so that no shape is
    /// assumed: a few slices in which somebody else had the machine do not count for more.
    pub noise: f64,
}

impl Change {
    /// Of `this` over `that`; `None` unless there are as many of the one as of the other.
    pub fn of(this: &Spread, that: &Spread) -> Option<Change> {
        if this.samples.len() != that.samples.len() {
            return None;
        }
        let pairs = this.samples.iter().zip(&that.samples);
        let mut ratios: Vec<_> = pairs.map(|(this, that)| this / that).collect();
        ratios.sort_by(f64::total_cmp);
        // So many of a fair coin's tosses fall on the rarer side, with that confidence.
        let n = ratios.len() as f64;
        let below = ((n - DEVIATIONS * n.sqrt()) / 2.0).max(0.0) as usize;
        let (low, high) = (ratios.get(below)?, ratios.get(ratios.len() - 1 - below)?);
        let ratio = this.median / that.median;
        Some(Change { change: ratio - 1.0, noise: (high - ratio).max(ratio - low) })
    }
}

/// How a change compares with its bound.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Judged {
    /// At most the bound, noise included.
    Within,
    /// More than the bound, noise deducted.
    Beyond,
    /// The noise does not let it be told.
    Unclear,
}

/// Against a bound.
pub fn judge(Change { change, noise }: Change, bound: f64) -> Judged {
    if change + noise <= bound {
        Judged::Within
    } else if change - noise > bound {
        Judged::Beyond
    } else {
        Judged::Unclear
    }
}

/// Of a normal distribution, either side of its mean: 95 % lie between.
const DEVIATIONS: f64 = 1.96;

/// Between the two nearest of `sorted`, in proportion; `share` in 0..=1.
pub fn quantile(sorted: &[f64], share: f64) -> Option<f64> {
    let place = share * (sorted.len().checked_sub(1)? as f64);
    let (low, high) = (sorted[place.floor() as usize], sorted[place.ceil() as usize]);
    Some(low + (high - low) * place.fract())
}

/// Of positive numbers; `None` of nothing.
pub fn geometric_mean(numbers: impl IntoIterator<Item = f64>) -> Option<f64> {
    let (count, logs) =
        numbers.into_iter().fold((0u32, 0.0), |(count, logs), x| (count + 1, logs + x.ln()));
    (count > 0).then(|| (logs / f64::from(count)).exp())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spread_ignores_order_and_outliers() {
        let spread = Spread::of(vec![5.0, 1.0, 3.0, 2.0, 1000.0]).unwrap();
        assert_eq!((spread.median, spread.p10), (3.0, 1.4));
        assert_eq!(Spread::of(vec![1.0, 2.0]).unwrap().median, 1.5);
        assert_eq!(Spread::of(vec![]), None);
    }

    #[test]
    fn spreads_add_up_sample_by_sample() {
        let mut spread = Spread::of(vec![1.0, 9.0]).unwrap();
        spread.add(Spread::of(vec![2.0]).unwrap());
        assert_eq!(spread, Spread::of(vec![1.0, 9.0, 2.0]).unwrap());
        assert_eq!(spread.median, 2.0);
    }

    #[test]
    fn what_drifts_in_both_is_no_noise() {
        let that = Spread::of(vec![100.0, 200.0, 300.0, 400.0]).unwrap();
        let this = Spread::of(vec![110.0, 220.0, 330.0, 440.0]).unwrap();
        let change = Change::of(&this, &that).unwrap();
        assert!((change.change - 0.1).abs() < 1e-9 && change.noise < 1e-9, "{change:?}");
        let noisy = Spread::of(vec![110.0, 180.0, 330.0, 360.0]).unwrap();
        assert!(Change::of(&noisy, &that).unwrap().noise > 0.05);
        assert_eq!(Change::of(&Spread::of(vec![1.0]).unwrap(), &that), None);
    }

    #[test]
    fn a_few_pairs_that_somebody_disturbed_are_less_noise_than_many() {
        let noise = |pairs: usize, disturbed: usize| {
            let that = Spread::of(vec![100.0; pairs]).unwrap();
            let one = |n| if n < disturbed { 1000.0 } else { 99.0 + (n % 3) as f64 };
            Change::of(&Spread::of((0..pairs).map(one).collect()).unwrap(), &that).unwrap().noise
        };
        assert!(noise(50, 10) < 0.011, "a fifth");
        assert!(noise(50, 22) > 1.0, "nearly half");
        assert!(noise(5, 1) > 1.0, "few pairs, and all of them count");
    }

    #[test]
    fn a_bound_is_kept_or_broken_only_if_the_noise_lets_one_say_so() {
        let judged = |change, noise| judge(Change { change, noise }, 0.02);
        assert_eq!(judged(0.01, 0.005), Judged::Within);
        assert_eq!(judged(-0.3, 0.1), Judged::Within);
        assert_eq!(judged(0.01, 0.03), Judged::Unclear);
        assert_eq!(judged(0.03, 0.02), Judged::Unclear);
        assert_eq!(judged(0.03, 0.005), Judged::Beyond);
    }

    #[test]
    fn geometric_mean_of_inverse_ratios_is_one() {
        assert!((geometric_mean([4.0, 0.25]).unwrap() - 1.0).abs() < 1e-12);
        assert_eq!(geometric_mean([]), None);
    }
}
