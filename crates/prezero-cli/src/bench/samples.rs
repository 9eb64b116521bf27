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
}

/// Between the two nearest of `sorted`, in proportion; `share` in 0..=1.
fn quantile(sorted: &[f64], share: f64) -> Option<f64> {
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
    fn geometric_mean_of_inverse_ratios_is_one() {
        assert!((geometric_mean([4.0, 0.25]).unwrap() - 1.0).abs() < 1e-12);
        assert_eq!(geometric_mean([]), None);
    }
}
