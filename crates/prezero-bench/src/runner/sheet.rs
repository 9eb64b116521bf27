//! From the runs of a row to its figures, and whether they are known well enough.

use anyhow::Result;
use prezero_host::samples::{Change, Judged};

use super::contest::{Contest, Row, Run, Way};
use super::said;
use super::turns::{PAIRS, go_on};
use crate::figure::{Against, Better, Figure};
use crate::peers::{self, PREZERO};
use crate::progress;
use crate::table::{Named, Sheet};

/// Fewer runs say nothing of a bound: anything may be.
const FEW: usize = 3;

/// The figures of a row; each way is compared with the base, run by run.
pub fn figures(
    sheet: &Sheet,
    named: &[Named],
    row: &Row,
    ways: &[Way],
    taken: &[Vec<Run>],
) -> Result<Vec<Figure>> {
    let prints = !named.iter().all(said::is_spent);
    let mut all: Vec<Figure> = vec![];
    for (nth, figure) in named.iter().enumerate() {
        let mut of_it: Vec<Made<'_>> = vec![];
        for (arm, runs) in ways.iter().zip(taken) {
            for (label, values) in said::by_row(runs, prints)? {
                let mut samples = vec![];
                for (value, spent) in &values {
                    match said::samples(value, spent, figure, nth, sheet.posted.skip) {
                        Ok(read) => samples.extend(read),
                        // Of several rows not each has all.
                        Err(_) if label.is_some() => {}
                        Err(error) => {
                            return Err(error.context(format!(
                                "{} under {}",
                                row.of.join(" "),
                                arm.name
                            )));
                        }
                    }
                }
                let mut of = row.of.clone();
                of.pop_if(|_| label.is_some());
                of.extend(label.clone());
                let of: Vec<&str> = of.iter().map(String::as_str).collect();
                let Some(made) = Figure::of_samples(&arm.name, &figure.name, &figure.unit, samples)
                else {
                    continue;
                };
                let better = if figure.more { Better::More } else { Better::Less };
                of_it.push((arm, values.len(), made.case(&of).better(better)));
            }
        }
        // Where a program speaks of several rows, those of one stand together.
        let order: Vec<Vec<String>> = of_it.iter().map(|(_, _, made)| made.of.clone()).collect();
        of_it.sort_by_key(|(_, _, made)| order.iter().position(|of| *of == made.of));
        let compared: Vec<Figure> = of_it
            .iter()
            .map(|(arm, runs, made)| {
                let bounded = sheet.asked.bound.as_ref().is_none_or(|only| *only == arm.name);
                let most = sheet.asked.most.get(&figure.name).filter(|_| bounded).copied();
                let made = Figure { wanted: most, ..made.clone() };
                let against = against(sheet, arm, *runs, &made, &of_it, nth);
                let least = least(sheet, &made, &of_it);
                made.and(against).and(least)
            })
            .collect();
        all.extend(compared);
    }
    Ok(all)
}

type Made<'a> = (&'a Way, usize, Figure);

fn find<'a>(all: &'a [Made<'_>], name: &str, like: &Figure) -> Option<&'a Made<'a>> {
    all.iter().find(|(arm, _, made)| arm.name == name && made.of == like.of)
}

/// Against the base: in pairs where each run told one sample.
fn against(
    sheet: &Sheet,
    arm: &Way,
    runs: usize,
    made: &Figure,
    all: &[Made<'_>],
    nth: usize,
) -> Option<Against> {
    let first = all.first().map(|(arm, ..)| arm.name.as_str()).unwrap_or_default();
    let base = arm.said.base.as_deref().or(sheet.asked.base.as_deref()).unwrap_or(first);
    let base =
        if all.iter().any(|(arm, ..)| arm.name == base) || base == "none" { base } else { first };
    if base == arm.name
        || base == "none"
        || (sheet.asked.best.is_some() && sheet.asked.base.is_none())
    {
        return None;
    }
    let (_, _, other) = find(all, base, made)?;
    let compared = in_pairs(runs, made, other, base).unwrap_or_else(|| made.against(base, other));
    let wanted = arm.said.wanted.filter(|_| nth == 0).or(sheet
        .asked
        .wanted
        .get(&made.name)
        .copied()
        .filter(|_| arm.name == PREZERO));
    // Of too few anything may be.
    let noise = if made.samples.len() < FEW && wanted.is_some() {
        compared.noise.map(|noise| noise.max(1.0))
    } else {
        compared.noise
    };
    let mut compared = Against { wanted, noise, ..compared };
    if let Some((_, _, limit)) = sheet
        .asked
        .limit
        .as_ref()
        .and_then(|limit| find(all, limit, made))
        .filter(|_| wanted.is_some())
    {
        let of_limit = in_pairs(runs, made, limit, "").map(|it| Against { wanted, ..it });
        compared.at_limit = of_limit.is_some_and(|it| it.judged() == Some(Judged::Within));
    }
    compared.times.is_finite().then_some(compared)
}

fn in_pairs(runs: usize, made: &Figure, other: &Figure, what: &str) -> Option<Against> {
    if made.samples.len() != runs {
        return None;
    }
    let change = Change::of_runs(&made.samples, &other.samples)
        .filter(|change| change.change.is_finite())?;
    let (times, noise) = match made.better {
        Better::More => (1.0 + change.change, change.noise),
        Better::Less | Better::Neither => change.times(),
    };
    Some(Against { noise: Some(noise), ..Against::new(what, what, times) })
}

/// prezero against the peer that has the least.
fn least(sheet: &Sheet, made: &Figure, all: &[Made<'_>]) -> Option<Against> {
    let wanted = sheet.asked.least.get(&made.name).filter(|_| made.who == PREZERO)?;
    let peers = all.iter().filter(|(arm, ..)| peers::names().any(|name| name == arm.name));
    let peers = peers.map(|(_, _, figure)| figure).filter(|figure| figure.of == made.of);
    let least = peers.min_by(|a, b| a.value.total_cmp(&b.value))?;
    Some(made.against("least", least).wanted(*wanted))
}

/// Goes on with base, limit and prezero until the ratio of their times is known, or time is up.
pub fn go_on_until(
    contest: &Contest<'_>,
    row: &Row,
    sheet: &Sheet,
    taken: &mut [Vec<Run>],
    seconds: u64,
) -> Result<()> {
    let Some(width) = sheet.asked.width else { return Ok(()) };
    let place = |name: Option<&str>| contest.ways.iter().position(|way| Some(&*way.name) == name);
    let [base, limit] = [&sheet.asked.base, &sheet.asked.limit].map(|name| place(name.as_deref()));
    let (Some(base), Some(ours)) = (base, place(Some(PREZERO))) else { return Ok(()) };
    let those: Vec<usize> = [Some(base), limit, Some(ours)].into_iter().flatten().collect();
    let once = |which: usize| {
        progress::whole()?;
        contest.once(&contest.ways[which], row)
    };
    let known = |taken: &[Vec<Run>]| {
        let walls = |which: usize| taken[which].iter().map(|run| run.spent.wall_s);
        Ok(is_known(&walls(ours).collect::<Vec<_>>(), &walls(base).collect::<Vec<_>>(), width))
    };
    go_on(taken, &those, seconds, once, known)
}

/// Whether the ratio of times that were taken in pairs is known so well.
fn is_known(ours: &[f64], base: &[f64], width: f64) -> bool {
    ours.len() >= PAIRS && Change::of_runs(ours, base).is_none_or(|change| change.noise <= width)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::CASES;
    use prezero_command::spent::Spent;

    fn runs(walls: &[f64], peak_mib: f64) -> Vec<Run> {
        let spent = |wall_s| Spent { wall_s, peak_mib, ..Spent::default() };
        walls
            .iter()
            .map(|&wall| Run {
                said: String::new(),
                spent: spent(wall),
                stats: serde_json::Value::Null,
            })
            .collect()
    }

    /// The figures of `real` of a program: its times and its peak under each arm.
    fn told(results: &[(&str, &[f64], f64)]) -> Vec<Figure> {
        let sheet = &CASES.benchmarks["real"].sheet[0];
        let arms: Vec<_> = results
            .iter()
            .map(|(name, ..)| Way {
                name: (*name).into(),
                ..Way::of(&crate::peers::Allocator::plain())
            })
            .collect();
        let taken: Vec<_> = results.iter().map(|(_, walls, peak)| runs(walls, *peak)).collect();
        let row = Row { of: vec!["sort".into()], ..Row::default() };
        figures(sheet, &Named::all(sheet).unwrap(), &row, &arms, &taken).unwrap()
    }

    /// How prezero keeps its bound against another, and whether it is at the limit.
    fn kept(figures: &[Figure], name: &str, what: &str) -> (Option<Judged>, bool) {
        let ours =
            figures.iter().find(|figure| figure.who == PREZERO && figure.name == name).unwrap();
        let against = ours.against.iter().find(|against| against.what == what).unwrap();
        (against.judged(), against.at_limit)
    }

    #[test]
    fn speed_is_against_the_base_and_size_against_the_smallest_peer() {
        let with = |wall: f64, peak| {
            let all = told(&[
                ("glibc", &[1.0; 5], 100.0),
                ("jemalloc", &[0.5; 5], 120.0),
                (PREZERO, &[wall; 5], peak),
                ("bare", &[1.0; 5], 0.1),
            ]);
            (kept(&all, "wall", "glibc").0, kept(&all, "peak", "least").0)
        };
        assert_eq!(
            with(1.009, 110.0),
            (Some(Judged::Within), Some(Judged::Within)),
            "bare is no peer"
        );
        assert_eq!(with(1.02, 111.0), (Some(Judged::Beyond), Some(Judged::Beyond)));
    }

    #[test]
    fn the_cost_of_any_library_is_the_limit() {
        let with = |bare: f64| {
            let all = told(&[
                ("glibc", &[1.0; 5], 1.0),
                (PREZERO, &[1.05; 5], 1.0),
                ("bare", &[bare; 5], 1.0),
            ]);
            kept(&all, "wall", "glibc")
        };
        assert_eq!(with(1.045), (Some(Judged::Beyond), true));
        assert_eq!(with(1.03), (Some(Judged::Beyond), false), "more than that is ours");
    }

    #[test]
    fn noise_and_too_few_runs_hide_on_which_side_a_program_is() {
        let with = |walls: &[f64]| {
            kept(
                &told(&[("glibc", &vec![1.0; walls.len()], 1.0), (PREZERO, walls, 1.0)]),
                "wall",
                "glibc",
            )
            .0
        };
        assert_eq!(with(&[0.9, 0.95, 1.0, 1.05, 1.1]), Some(Judged::Unclear));
        assert_eq!(with(&[1.0; FEW]), Some(Judged::Within));
        assert_eq!(with(&[1.0; FEW - 1]), Some(Judged::Unclear), "too few");
    }

    #[test]
    fn a_ratio_is_known_by_enough_pairs_that_agree() {
        let drifting: Vec<f64> = (0..PAIRS).map(|n| 1.0 + n as f64).collect();
        let half: Vec<f64> = drifting.iter().map(|wall| wall / 2.0).collect();
        assert!(is_known(&drifting, &half, 0.005));
        assert!(!is_known(&drifting[1..], &half[1..], 0.005), "too few");
        let turned: Vec<f64> = drifting.iter().rev().copied().collect();
        assert!(!is_known(&drifting, &turned, 0.005), "they disagree");
    }
}
