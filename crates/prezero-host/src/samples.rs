//! The arithmetic of samples: medians, spread, geometric mean.

/// Half of them lie below; `None` of none.
pub fn median(samples: &[f64]) -> Option<f64> {
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    quantile(&sorted, 0.5)
}

/// What their median may be off by either way, as a share of it, with some 95 % confidence: from how far
/// their middle 80 % lie apart, since a few disturbed ones say nothing of the others. `None` of
/// fewer than two.
pub fn noise(samples: &[f64]) -> Option<f64> {
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    let apart = quantile(&sorted, 0.9)? - quantile(&sorted, 0.1)?;
    let noise = DEVIATIONS * OF_A_MEDIAN * apart / TENTHS_APART / (sorted.len() as f64).sqrt();
    let noise = noise / quantile(&sorted, 0.5)?.abs();
    (sorted.len() > 1 && noise.is_finite()).then_some(noise)
}

/// How much one median, or another quantile, is above another, where the samples were taken in pairs.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Change {
    /// Their ratio, less one.
    pub change: f64,
    /// What it may be off by, either way, with some 95 % confidence.
    pub noise: f64,
}

impl Change {
    /// The median of the pairs' ratios, `this` over `that`; `None` unless there are as many of the one as of
    /// the other. Its noise is where that median lies by their ranks, so that no shape is assumed:
    /// a few slices in which another guest had the machine do not count for more. The ratio of the
    /// two medians forgets which samples are neighbours: drawn anew, it was off by up to 2.7 times
    /// as much.
    pub fn of(this: &[f64], that: &[f64]) -> Option<Change> {
        let mut ratios = ratios(this, that)?;
        ratios.sort_by(f64::total_cmp);
        // The tosses of a fair coin that fall on the rarer side, with that confidence.
        let n = ratios.len() as f64;
        Change::median(&ratios, (n - DEVIATIONS * n.sqrt()) / 2.0)
    }

    /// Of whole runs of a program, which were taken in pairs: the median of the geometric means of every two
    /// pairs' ratios (Hodges and Lehmann 1963), and its noise by their ranks, after Wilcoxon. What others on the
    /// host add hits either of a pair as often as the other, so that these lie evenly about the change; then
    /// it is known from half as many runs as by [`Change::of`]. Where one of the two alone is disturbed now
    /// and then, as by slices of a busy CPU, that one is the better.
    pub fn of_runs(this: &[f64], that: &[f64]) -> Option<Change> {
        let ratios = ratios(this, that)?;
        let n = ratios.len() as f64;
        let each = ratios.iter().enumerate();
        let mut means: Vec<_> = each
            .flat_map(|(nth, one)| ratios[nth..].iter().map(move |other| (one * other).sqrt()))
            .collect();
        means.sort_by(f64::total_cmp);
        // How many means are on the rarer side of no change: a sum of ranks, of which each is there or not.
        let deviation = (n * (n + 1.0) * (2.0 * n + 1.0) / 24.0).sqrt();
        Change::median(&means, n * (n + 1.0) / 4.0 - DEVIATIONS * deviation - 0.5)
    }

    /// The same, told as how many times as good as the other: times take less the better they are.
    pub fn times(self) -> (f64, f64) {
        let times = 1.0 / (1.0 + self.change);
        (times, self.noise * times * times)
    }

    /// Of the median of ascending ratios: it lies between the two that have `beyond` others beyond them.
    fn median(sorted: &[f64], beyond: f64) -> Option<Change> {
        let beyond = beyond.max(0.0) as usize;
        let (low, high) = (sorted.get(beyond)?, sorted.get(sorted.len() - 1 - beyond)?);
        let ratio = quantile(sorted, 0.5)?;
        Some(Change { change: ratio - 1.0, noise: (high - ratio).max(ratio - low) })
    }
}

/// The ratio of each pair, `this` over `that`. `None` unless there are as many of the one as of the
/// other.
fn ratios(this: &[f64], that: &[f64]) -> Option<Vec<f64>> {
    let pairs = this.iter().zip(that);
    (this.len() == that.len()).then(|| pairs.map(|(this, that)| this / that).collect())
}

/// How something compares with its bound.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Judged {
    /// It is kept, noise included.
    Within,
    /// It is broken, noise deducted.
    Beyond,
    /// The noise does not let it be told.
    Unclear,
}

/// Of something that is to be `bound` or more.
pub fn judge(value: f64, noise: f64, bound: f64) -> Judged {
    if value - noise >= bound {
        Judged::Within
    } else if value + noise < bound {
        Judged::Beyond
    } else {
        Judged::Unclear
    }
}

/// Of a normal distribution, either side of its mean: 95 % lie between.
const DEVIATIONS: f64 = 1.96;
/// And between its first and last tenth, in standard deviations; and the standard error of a
/// median over that of a mean.
const TENTHS_APART: f64 = 2.563;
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
    fn a_median_and_its_noise_ignore_order_and_outliers() {
        assert_eq!(median(&[5.0, 1.0, 3.0, 2.0, 1000.0]), Some(3.0));
        assert_eq!((median(&[1.0, 2.0]), median(&[])), (Some(1.5), None));
        let even: Vec<f64> = (0..100).map(|n| 100.0 + f64::from(n % 10)).collect();
        let mut disturbed = even.clone();
        disturbed[7] = 9000.0;
        assert!((noise(&even).unwrap() - noise(&disturbed).unwrap()).abs() < 0.001);
        assert_eq!((noise(&[1.0]), noise(&[0.0, 0.0])), (None, None));
    }

    /// A run's time, of which others on the host make many a bit and some much longer.
    fn run_time(random: &mut fastrand::Rng, least: f64) -> f64 {
        let added = if random.f64() < 0.4 { 0.02 * random.f64() } else { 0.2 * random.f64() };
        least * (1.0 + added)
    }

    #[test]
    fn the_noise_of_runs_holds_their_change_19_times_of_20_and_is_less_than_the_medians() {
        let mut random = fastrand::Rng::with_seed(7);
        for pairs in [6, 10, 40] {
            let (mut held, mut of_runs, mut of_medians) = (0, 0.0, 0.0);
            for _ in 0..1000 {
                let mut times =
                    |least| (0..pairs).map(|_| run_time(&mut random, least)).collect::<Vec<_>>();
                let (this, that) = (times(1.02), times(1.0));
                let change = Change::of_runs(&this, &that).unwrap();
                held += u32::from((change.change - 0.02).abs() <= change.noise);
                of_runs += change.noise;
                of_medians += Change::of(&this, &that).unwrap().noise;
            }
            assert!((950..990).contains(&held), "{held} of 1000 with {pairs} pairs");
            let most = if pairs < 10 { 1.0 } else { 0.9 };
            assert!(of_runs < most * of_medians, "{of_runs} {of_medians} with {pairs} pairs");
        }
    }

    #[test]
    fn runs_are_compared_in_pairs() {
        let that = [1.0, 2.0, 3.0, 4.0, 5.0, 60.0];
        let this = that.map(|time| 1.1 * time);
        let change = Change::of_runs(&this, &that).unwrap();
        assert!((change.change - 0.1).abs() < 1e-9 && change.noise < 1e-9, "{change:?}");
        let back = Change::of_runs(&that, &this).unwrap();
        assert!((back.change - (1.0 / 1.1 - 1.0)).abs() < 1e-9, "{back:?}");
        assert_eq!(Change::of_runs(&[1.0], &that), None);
    }

    #[test]
    fn a_drift_in_both_is_no_noise() {
        let that = [100.0, 200.0, 300.0, 400.0];
        let this = [110.0, 220.0, 330.0, 440.0];
        let change = Change::of(&this, &that).unwrap();
        assert!((change.change - 0.1).abs() < 1e-9 && change.noise < 1e-9, "{change:?}");
        let noisy = [110.0, 180.0, 330.0, 360.0];
        assert!(Change::of(&noisy, &that).unwrap().noise > 0.05);
        assert_eq!(Change::of(&[1.0], &that), None);
        // Each is 10 % slower than its neighbour in a machine that becomes three times as slow for one of two.
        let that = [1.0, 1.0, 1.0, 3.0, 3.0];
        let this = [1.1, 1.1, 3.0, 3.3, 3.3];
        assert!((Change::of(&this, &that).unwrap().change - 0.1).abs() < 1e-9);
    }

    #[test]
    fn a_few_disturbed_pairs_are_less_noise_than_many() {
        let noise = |pairs: usize, disturbed: usize| {
            let that = vec![100.0; pairs];
            let one = |n| if n < disturbed { 1000.0 } else { 99.0 + (n % 3) as f64 };
            Change::of(&(0..pairs).map(one).collect::<Vec<_>>(), &that).unwrap().noise
        };
        assert!(noise(50, 10) < 0.011, "a fifth");
        assert!(noise(50, 22) > 1.0, "nearly half");
        assert!(noise(5, 1) > 1.0, "few pairs, and all of them count");
    }

    #[test]
    fn a_bound_is_kept_or_broken_only_if_the_noise_lets_one_say_so() {
        let judged = |value, noise| judge(value, noise, 0.98);
        assert_eq!(judged(0.99, 0.005), Judged::Within);
        assert_eq!(judged(1.3, 0.1), Judged::Within);
        assert_eq!(judged(0.99, 0.03), Judged::Unclear);
        assert_eq!(judged(0.97, 0.02), Judged::Unclear);
        assert_eq!(judged(0.97, 0.005), Judged::Beyond);
    }

    #[test]
    fn a_tenth_less_is_a_ninth_better() {
        let (times, noise) = Change { change: -0.1, noise: 0.009 }.times();
        assert!((times - 1.0 / 0.9).abs() < 1e-9 && (noise - 0.009 / 0.81).abs() < 1e-9);
    }

    #[test]
    fn geometric_mean_of_inverse_ratios_is_one() {
        assert!((geometric_mean([4.0, 0.25]).unwrap() - 1.0).abs() < 1e-12);
        assert_eq!(geometric_mean([]), None);
    }
}
