//! What a sheet comes to: whether its bounds are kept, as far as noise lets one say.

use std::fmt::Write;

use super::layout::{named, shown};
use super::sheet::{Across, Better, Sheet};
use prezero_host::samples::{Judged, geometric_mean};

/// What is to be kept: its name, the figure's place, what it is, and how it is kept.
struct Bound<'a> {
    what: String,
    side: &'static str,
    wanted: Option<f64>,
    value: f64,
    /// The less, the worse.
    rank: f64,
    case: String,
    judged: Option<Judged>,
    at_limit: bool,
    mean: Option<&'a str>,
}

impl Sheet {
    /// All comparisons, and all figures that have a bound.
    fn bounds(&self) -> impl Iterator<Item = Bound<'_>> {
        let compared = self.figures.iter().flat_map(|figure| {
            let whose = if self.across == Across::Name { &*figure.who } else { "" };
            figure.against.iter().map(move |against| Bound {
                what: format!("x {}", against.what),
                side: "at least",
                wanted: against.wanted,
                value: against.times,
                rank: against.times,
                case: joined(&[&figure.of.join(", "), whose, &against.peer]),
                judged: against.judged(),
                at_limit: against.at_limit,
                mean: Some(&against.what),
            })
        });
        // Other comparisons are for the reader's information.
        let compared =
            compared.filter(|bound| bound.wanted.is_some() || bound.mean == Some("best"));
        let bounded = self.figures.iter().filter(|figure| figure.wanted.is_some());
        compared.chain(bounded.map(|figure| {
            let more = figure.better == Better::More;
            Bound {
                what: named(figure),
                side: if more { "at least" } else { "at most" },
                wanted: figure.wanted,
                value: figure.value,
                rank: if more { figure.value } else { -figure.value },
                case: joined(&[&figure.of.join(", "), &figure.who]),
                judged: figure.judged(),
                at_limit: false,
                mean: None,
            }
        }))
    }

    /// Whether anything is wanted.
    pub fn has_bounds(&self) -> bool {
        self.bounds().next().is_some()
    }

    /// A line for each kind of bound: the mean of comparisons, the worst, and whether all are kept.
    pub fn judged(&self) -> Vec<String> {
        let all: Vec<_> = self.bounds().collect();
        let mut kinds: Vec<(&str, Option<f64>)> = vec![];
        for bound in &all {
            if !kinds.contains(&(&bound.what, bound.wanted)) {
                kinds.push((&bound.what, bound.wanted));
            }
        }
        let each = kinds.into_iter().map(|kind| {
            let of: Vec<_> =
                all.iter().filter(|bound| (&*bound.what, bound.wanted) == kind).collect();
            self.verdict(&of)
        });
        each.flatten().collect()
    }

    fn verdict(&self, of: &[&Bound<'_>]) -> Option<String> {
        let worst = of.iter().min_by(|a, b| a.rank.total_cmp(&b.rank))?;
        let mut line = format!("{}: ", worst.what);
        let mean = worst.mean.and_then(|_| geometric_mean(of.iter().map(|bound| bound.value)));
        if let Some(mean) = mean.filter(|_| of.len() > 1) {
            let lost = of.iter().filter(|bound| bound.value < 1.0).count();
            let _ = write!(line, "mean {mean:.2}, {lost} of {} below 1, ", of.len());
        }
        let _ = write!(line, "worst {} ({})", number(worst), worst.case);
        if let Some((_, wanted)) =
            self.wanted_mean.as_ref().filter(|(what, _)| worst.mean == Some(what))
        {
            let kept = mean.is_some_and(|mean| mean >= *wanted);
            let _ =
                write!(line, "; mean wanted {wanted}: {}", if kept { "reached" } else { "missed" });
        }
        if let Some(wanted) = worst.wanted {
            let _ = write!(line, "; wanted {} {}: {}", worst.side, short(wanted), outcome(of));
        }
        Some(line)
    }
}

fn number(bound: &Bound<'_>) -> String {
    match bound.mean {
        Some(_) if bound.value < 10.0 => format!("{:.3}", bound.value),
        _ => shown(bound.value),
    }
}

/// A bound in three digits, without zeroes behind.
fn short(bound: f64) -> String {
    let text = format!("{bound:.3}");
    text.trim_end_matches('0').trim_end_matches('.').into()
}

fn outcome(of: &[&Bound<'_>]) -> String {
    let count = |judged| of.iter().filter(|bound| bound.judged == Some(judged)).count();
    let (missed, hidden) = (count(Judged::Beyond), count(Judged::Unclear));
    let limited = of.iter().filter(|bound| bound.judged != Some(Judged::Within) && bound.at_limit);
    let limited = match limited.count() {
        0 => String::new(),
        some => format!(", {some} of these at the limit"),
    };
    match (missed, hidden) {
        (0, 0) => "reached".into(),
        (0, _) => format!("not decided, noise hides {hidden} of {}{limited}", of.len()),
        (_, 0) => format!("missed in {missed} of {}{limited}", of.len()),
        _ => format!("missed in {missed} of {}, noise hides {hidden}{limited}", of.len()),
    }
}

fn joined(words: &[&str]) -> String {
    let words: Vec<_> = words.iter().filter(|word| !word.is_empty()).copied().collect();
    words.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figure::{Against, Figure};
    use crate::peers::PREZERO;

    fn sheet(cells: &[(&str, f64, Option<f64>)]) -> Sheet {
        let mut sheet = Sheet::new("t", &["size"], Across::Who);
        for &(size, times, noise) in cells {
            let against = Against { noise, ..Against::new("best", "glibc", times).wanted(0.97) };
            sheet.push(Figure::new(PREZERO, "round", "us", 1.0).case(&[size]).and([against]));
        }
        sheet
    }

    #[test]
    fn a_verdict_has_the_mean_the_worst_and_how_many_miss() {
        let mut all = sheet(&[("1M", 4.0, None), ("2M", 0.25, None), ("4M", 0.96, Some(0.1))]);
        assert_eq!(
            all.judged(),
            ["x best: mean 0.99, 2 of 3 below 1, worst 0.250 (2M, glibc); wanted at least 0.97: \
              missed in 1 of 3, noise hides 1"]
        );
        all.figures[1].against[0].at_limit = true;
        assert!(all.judged()[0].ends_with("noise hides 1, 1 of these at the limit"));
        all.wanted_mean = Some(("best".into(), 4.5));
        assert!(all.judged()[0].contains("; mean wanted 4.5: missed; wanted"));
        assert!(sheet(&[("1M", 1.0, None)]).judged()[0].ends_with(": reached"));
        assert!(sheet(&[("1M", 0.97, Some(0.01))]).judged()[0].contains("not decided"));
    }

    #[test]
    fn figures_with_a_bound_are_judged_by_themselves() {
        let mut sheet = Sheet::new("t", &["pattern"], Across::Name);
        for (pattern, value) in [("never", 0.5), ("once", 2.0)] {
            sheet.push(
                Figure::new(PREZERO, "scrubbed of freed", "%", value).case(&[pattern]).wanted(1.0),
            );
        }
        assert_eq!(
            sheet.judged(),
            [
                "scrubbed of freed, %: worst 2.00 (once, prezero); wanted at most 1: missed in 1 of 2"
            ]
        );
    }
}
