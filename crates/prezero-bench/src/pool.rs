//! Samples that came in slices, and how their quantiles change.

use prezero_host::samples::{Change, quantile};

/// How often pairs are drawn: the outermost 5 % are ten then.
const DRAWS: usize = 200;
/// So that the same samples have the same noise.
const SEED: u64 = 1;
/// Either side of the 95 %.
const OUTSIDE: f64 = 0.025;

/// Samples that came in slices, all together.
#[derive(Debug)]
pub struct Pool {
    /// Ascending, each with its slice.
    samples: Vec<(f64, usize)>,
    /// How many samples each slice has.
    counts: Vec<u64>,
}

impl Pool {
    /// Of slices in the order taken.
    pub fn of(slices: &[&[f64]]) -> Pool {
        let each = slices.iter().enumerate();
        let mut samples: Vec<_> =
            each.flat_map(|(slice, all)| all.iter().map(move |&x| (x, slice))).collect();
        samples.sort_by(|a, b| a.0.total_cmp(&b.0));
        Pool { samples, counts: slices.iter().map(|slice| slice.len() as u64).collect() }
    }

    /// That of all of them; `None` of nothing.
    pub fn quantile(&self, share: f64) -> Option<f64> {
        self.drawn_quantile(&vec![1; self.counts.len()], share)
    }

    /// That of each slice, times its number. From the upper end, where less is to be counted for the rarest.
    fn drawn_quantile(&self, times: &[u64], share: f64) -> Option<f64> {
        let count: u64 = self.counts.iter().zip(times).map(|(count, times)| count * times).sum();
        let mut above = (((1.0 - share) * count as f64) as u64).min(count.checked_sub(1)?);
        let mut falling = self.samples.iter().rev().map(|&(x, slice)| (x, times[slice]));
        let reached = |&(_, n): &(f64, u64)| {
            let is_there = n > above;
            above = above.saturating_sub(n);
            is_there
        };
        falling.find(reached).map(|(x, _)| x)
    }

    /// The change of a quantile: that of all of this over that of all of `that`, which came in
    /// pairs of slices. Its noise by drawing as many pairs at random, again and again (Efron's
    /// bootstrap): the samples of a slice belong together, and a slice has too few of the rarest
    /// for a quantile of its own. `None` unless there are as many slices of the one as of the
    /// other.
    pub fn change_from(&self, that: &Pool, share: f64) -> Option<Change> {
        let slices = self.counts.len();
        if slices != that.counts.len() {
            return None;
        }
        let mut drawn = vec![1; slices];
        let ratio = |drawn: &[u64]| {
            Some(self.drawn_quantile(drawn, share)? / that.drawn_quantile(drawn, share)?)
        };
        let all = ratio(&drawn)?;
        let mut random = fastrand::Rng::with_seed(SEED);
        let mut ratios = vec![];
        for _ in 0..DRAWS {
            drawn.fill(0);
            (0..slices).for_each(|_| drawn[random.usize(..slices)] += 1);
            ratios.extend(ratio(&drawn));
        }
        ratios.sort_by(f64::total_cmp);
        let (low, high) = (quantile(&ratios, OUTSIDE)?, quantile(&ratios, 1.0 - OUTSIDE)?);
        Some(Change { change: all - 1.0, noise: (high - all).max(all - low) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pool_has_the_quantiles_of_all_that_is_in_its_slices() {
        let pool = Pool::of(&[&[9.0, 1.0, 5.0], &[], &[3.0, 7.0]]);
        assert_eq!(pool.quantile(0.5), Some(5.0));
        assert_eq!(pool.quantile(0.99), Some(9.0));
        assert_eq!(pool.quantile(0.0), Some(1.0));
        assert_eq!(pool.drawn_quantile(&[0, 1, 1], 0.99), Some(7.0));
        assert_eq!(pool.drawn_quantile(&[3, 0, 1], 0.5), Some(5.0));
        assert_eq!(Pool::of(&[&[]]).quantile(0.5), None);
    }

    #[test]
    fn the_rarest_of_all_slices_together_are_the_better_known_the_more_there_are() {
        // Lateness of a thousand wake-ups, exponentially distributed.
        let mut random = fastrand::Rng::with_seed(7);
        let mut slices = |pairs: usize, times: f64| -> Vec<Vec<f64>> {
            let mut one = || -random.f64().ln() * times;
            (0..pairs).map(|_| (0..1000).map(|_| one()).collect()).collect()
        };
        let pool =
            |slices: &[Vec<f64>]| Pool::of(&slices.iter().map(Vec::as_slice).collect::<Vec<_>>());
        let (few, more) = (slices(10, 1.0), slices(10, 1.2));
        let of_ten = pool(&more).change_from(&pool(&few), 0.99).unwrap();
        let (few, more) = (slices(160, 1.0), slices(160, 1.2));
        let of_many = pool(&more).change_from(&pool(&few), 0.99).unwrap();
        assert!(
            (of_many.change - 0.2).abs() < of_many.noise && of_many.noise < 0.05,
            "{of_many:?}"
        );
        assert!(of_ten.noise > 2.0 * of_many.noise, "{of_ten:?} {of_many:?}");

        // The same, of which the host takes every eighth slice and makes all of it late.
        let taken = |slices: &[Vec<f64>]| -> Vec<Vec<f64>> {
            let late = |nth: usize| if nth.is_multiple_of(8) { 3.0 } else { 1.0 };
            let each = slices.iter().enumerate();
            each.map(|(nth, all)| all.iter().map(|x| x * late(nth)).collect()).collect()
        };
        let shifted: Vec<_> = taken(&more).into_iter().cycle().skip(1).take(more.len()).collect();
        let of_taken = pool(&shifted).change_from(&pool(&taken(&few)), 0.99).unwrap();
        assert!(of_taken.noise > 2.0 * of_many.noise, "slices count, not wake-ups: {of_taken:?}");

        let same = pool(&few).change_from(&pool(&few), 0.99).unwrap();
        assert_eq!((same.change, same.noise), (0.0, 0.0), "what drifts in both is no noise");
        assert_eq!(pool(&few).change_from(&pool(&few[1..]), 0.99), None);
    }
}
