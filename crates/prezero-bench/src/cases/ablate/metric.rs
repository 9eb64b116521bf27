//! What is measured of a run, and what it says of a mechanism.

use crate::figure::{Across, Against, Figure, Sheet};
use crate::peers::PREZERO;
use prezero_host::samples::Change;

/// Its name and unit; times and faults are those of a request, or of a whole program that others wrote.
pub const METRICS: [(&str, &str); 5] =
    [("time", "us"), ("95th percentile", "us"), ("CPU", "us"), ("faults", ""), ("peak", "MiB")];
/// The times of [`METRICS`] that have to be known for a row to end early.
pub const LEADING: [usize; 2] = [0, 2];
/// The column of the runs without a mechanism.
pub const WITHOUT: &str = "without";
/// Less than this is next to nothing of a metric: a tenth of a fault for a request, and times that no
/// clock tells.
const LITTLE: f64 = 0.1;
/// Fewer pairs agree by chance more often than once in twenty times.
const ENOUGH: usize = 6;

/// One run, by [`METRICS`]. Not every workload has all of them.
#[derive(Clone, Copy, Debug)]
pub struct Figures(pub [Option<f64>; METRICS.len()]);

/// The samples of a metric; `None` where a run has none.
fn samples(runs: &[Figures], metric: usize) -> Option<Vec<f64>> {
    runs.iter().map(|run| run.0[metric]).collect()
}

/// Without over with, less one. `None` where both are next to nothing, whose ratio says nothing.
pub fn change(with: &[Figures], without: &[Figures], metric: usize) -> Option<Change> {
    let (with, without) = (samples(with, metric)?, samples(without, metric)?);
    if with.iter().chain(&without).all(|value| *value < LITTLE) {
        return None;
    }
    let change = Change::of_runs(&without, &with)?;
    (change.change.is_finite() && change.noise.is_finite()).then_some(change)
}

/// An empty sheet.
pub fn sheet() -> Sheet {
    Sheet::new("ablate: programs without a mechanism", &["mechanism", "workload"], Across::Who)
        .note("speed-up with the mechanism over without it; above 1 it spares something")
}

/// Adds the pairs of a mechanism on a workload.
pub fn add(sheet: &mut Sheet, of: [&str; 2], with: &[Figures], without: &[Figures]) {
    let pairs = with.len().min(without.len());
    let (with, without) = (&with[..pairs], &without[..pairs]);
    for (metric, (name, unit)) in METRICS.into_iter().enumerate() {
        let figure = |who: &str, runs: &[Figures]| {
            let figure = Figure::of_samples(who, name, unit, samples(runs, metric)?)?;
            Some(figure.case(&of))
        };
        let against = change(with, without, metric).map(|change| {
            let noise = Some(change.noise);
            Against { noise, ..Against::new(WITHOUT, WITHOUT, 1.0 + change.change) }
        });
        sheet.extend(figure(PREZERO, with).map(|figure| figure.and(against)));
        sheet.extend(figure(WITHOUT, without));
    }
}

/// What the comparisons come to, a sentence for each mechanism.
pub fn verdicts(sheet: &Sheet) -> Vec<String> {
    let mut mechanisms: Vec<&str> = vec![];
    for figure in &sheet.figures {
        if !mechanisms.contains(&&*figure.of[0]) {
            mechanisms.push(&figure.of[0]);
        }
    }
    let verdict = |mechanism: &str| {
        let of_it = sheet.figures.iter().filter(|figure| figure.of[0] == mechanism);
        let beyond = of_it.flat_map(|figure| {
            let enough = figure.samples.len() >= ENOUGH;
            let known = figure.against.iter().filter(move |against| {
                let noise = against.noise.unwrap_or(f64::INFINITY);
                enough && (against.times - 1.0).abs() > noise
            });
            known.map(|against| {
                let noise = against.noise.unwrap_or(0.0);
                format!("{} of {} x {:.3} ± {noise:.3}", figure.name, figure.of[1], against.times)
            })
        });
        let beyond: Vec<_> = beyond.collect();
        match beyond[..] {
            [] => format!("{mechanism}: nothing beyond noise"),
            _ => format!("{mechanism}: {}", beyond.join("; ")),
        }
    };
    mechanisms.into_iter().map(verdict).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn runs(times: &[f64]) -> Vec<Figures> {
        times.iter().map(|&us| Figures([Some(us), None, Some(2.0 * us), Some(0.0), None])).collect()
    }

    #[test]
    fn savings_are_told_and_missing_figures_left_out() {
        let mut sheet = sheet();
        let (with, without) =
            (runs(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]), runs(&[1.1, 2.2, 3.3, 4.4, 5.5, 6.6]));
        add(&mut sheet, ["latest", "busy"], &with, &without);
        let figure = sheet.find(PREZERO, &["latest", "busy"], "time").unwrap();
        assert!((figure.against[0].times - 1.1).abs() < 1e-9, "{figure:?}");
        assert!(sheet.find(PREZERO, &["latest", "busy"], "peak").is_none());
        let faults = sheet.find(PREZERO, &["latest", "busy"], "faults").unwrap();
        assert!(faults.against.is_empty(), "nothing over nothing");
        assert!(
            verdicts(&sheet)[0].starts_with("latest: time of busy x 1.100 ± 0.000; CPU of busy")
        );
    }

    #[test]
    fn few_pairs_or_much_noise_say_nothing() {
        let mut sheet = sheet();
        add(&mut sheet, ["gather", "busy"], &runs(&[1.0; 3]), &runs(&[2.0; 3]));
        let noisy = runs(&[1.1, 0.9, 1.1, 0.9, 1.1, 0.9]);
        add(&mut sheet, ["reach", "busy"], &runs(&[1.0; 6]), &noisy);
        assert_eq!(
            verdicts(&sheet),
            ["gather: nothing beyond noise", "reach: nothing beyond noise"]
        );
    }
}
