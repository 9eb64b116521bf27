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
    /// What it may be off by, either way, with some 95 % confidence: two standard errors
    /// of a median of the pairs' ratios, their spread taken from its quantiles.
    pub noise: f64,
}

impl Change {
    /// Of `this` over `that`; `None` unless there are as many of the one as of the other.
    pub fn of(this: &Spread, that: &Spread) -> Option<Change> {
        let pairs = this.samples.iter().zip(&that.samples);
        let ratios = Spread::of(pairs.map(|(this, that)| this / that).collect())?;
        let count = ratios.samples.len();
        if [this.samples.len(), that.samples.len()] != [count; 2] {
            return None;
        }
        let deviation = (ratios.p90 - ratios.p10) / TENTHS_APART;
        let error = OF_A_MEDIAN * deviation / (count as f64).sqrt();
        Some(Change { change: this.median / that.median - 1.0, noise: 2.0 * error })
    }
}

/// Between the first and the last tenth of a normal distribution, in standard deviations.
const TENTHS_APART: f64 = 2.563;
/// Standard error of a median over that of a mean.
const OF_A_MEDIAN: f64 = 1.2533;

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
    fn geometric_mean_of_inverse_ratios_is_one() {
        assert!((geometric_mean([4.0, 0.25]).unwrap() - 1.0).abs() < 1e-12);
        assert_eq!(geometric_mean([]), None);
    }
}
