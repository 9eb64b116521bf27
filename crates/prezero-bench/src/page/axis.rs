//! An axis of a plot: where its labels stand, and what they say.

use crate::figure::shown;

/// An axis in powers of a base, from one exponent to another.
pub struct Powers {
    base: f64,
    /// What the powers are of: one, a thousand, a million.
    unit: f64,
    from: f64,
    to: f64,
}

impl Powers {
    /// Of all these, with a margin; of two where they are not far apart, else of ten.
    pub fn over(values: impl Iterator<Item = f64> + Clone, margin: f64) -> Powers {
        let low = values.clone().fold(f64::MAX, f64::min);
        let high = values.fold(f64::MIN, f64::max).max(low * 1.01);
        let base = if margin > 0.0 && high / low > 100.0 { 10.0f64 } else { 2.0 };
        let unit = if margin > 0.0 { 1000f64.powf(high.max(1.0).log(1000.0).floor()) } else { 1.0 };
        let margin = (high / low).powf(margin);
        let at = |value: f64| (value / unit).log2() / base.log2();
        Powers { base, unit, from: at(low / margin), to: at(high * margin) }
    }

    pub fn at(&self, value: f64) -> f64 {
        (value / self.unit).log2() / self.base.log2()
    }

    /// As a share of the axis.
    pub fn share(&self, exponent: f64) -> f64 {
        (exponent - self.from) / (self.to - self.from)
    }

    /// Exponents that have a label, at most `most`: whole ones, or those of round values where there are few of these.
    pub fn ticks(&self, most: usize) -> Vec<f64> {
        let (first, last) = (self.from.ceil() as i64, self.to.floor() as i64);
        let whole = (last - first + 1).max(0) as usize;
        if whole < 3 {
            return self.round(most);
        }
        (first..=last).step_by(whole.div_ceil(most)).map(|exponent| exponent as f64).collect()
    }

    /// As a ruler has them: steps of one, two or five times a power of ten.
    fn round(&self, most: usize) -> Vec<f64> {
        let [low, high] = [self.from, self.to].map(|exponent| self.base.powf(exponent));
        let ten = 10f64.powf(((high - low) / most as f64).log10().floor());
        let within = |step: f64| (low / step).ceil() as i64..=(high / step).floor() as i64;
        let fits = |step: &f64| within(*step).count() <= most;
        let step = [1.0, 2.0, 5.0, 10.0, 20.0].map(|times| times * ten).into_iter().find(fits);
        let values = step.map(|step| within(step).map(move |nth| nth as f64 * step));
        values.into_iter().flatten().map(|value| value.log2() / self.base.log2()).collect()
    }

    pub fn label(&self, exponent: f64) -> String {
        short(self.unit * self.base.powf(exponent))
    }
}

/// As a table shows it, without zeroes that say nothing.
pub fn short(value: f64) -> String {
    let text = shown(value);
    let (number, unit) = text.split_at(text.len() - text.ends_with(['k', 'M', 'G']) as usize);
    match number.contains('.') && !number.contains('e') {
        true => format!("{}{unit}", number.trim_end_matches('0').trim_end_matches('.')),
        false => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_axis_is_labelled_at_powers_or_at_round_values() {
        let axis = |values: [f64; 2]| Powers::over(values.into_iter(), 0.08);
        let bases = [[1.0, 16.0], [1e5, 9e6], [1e4, 9e6]].map(|values| axis(values).base);
        assert_eq!(bases, [2.0, 2.0, 10.0]);
        let near = axis([0.93, 1.12]);
        let labels: Vec<_> = near.ticks(6).into_iter().map(|tick| near.label(tick)).collect();
        assert_eq!(labels, ["0.95", "1", "1.05", "1.1"]);
        let near = axis([0.7, 1.4]);
        let labels: Vec<_> = near.ticks(6).into_iter().map(|tick| near.label(tick)).collect();
        assert_eq!(labels, ["0.8", "1", "1.2", "1.4"]);
        let lines = Powers::over([1.0, 128.0].into_iter(), 0.0);
        assert_eq!((lines.from, lines.to, lines.at(128.0)), (0.0, 7.0, 7.0), "the last label too");
        assert_eq!(
            (axis([1.0, 16.0]).ticks(6).len(), axis([1.0, 16.0]).label(4.0)),
            (5, "16".into())
        );
        let rates = axis([3e5, 5e6]);
        assert_eq!((rates.at(4e6), rates.label(2.0)), (2.0, "4M".into()));
        assert_eq!((rates.label(-1.0), rates.label(-2.0)), ("500k".into(), "250k".into()));
        assert!(axis([1e3, 1e7]).ticks(4).len() <= 4, "no more than there is room for");
    }

    #[test]
    fn labels_are_short() {
        let values = [0.0, 1.0, 1.5, 12.0, 500_000.0, 4e7, -3.25];
        assert_eq!(values.map(short), ["0", "1", "1.5", "12", "500k", "40M", "-3.25"]);
    }
}
