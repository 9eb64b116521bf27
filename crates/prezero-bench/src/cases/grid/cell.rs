//! One cell of the grid: what was measured in it, pass by pass, and the figures that come of it.

use std::collections::BTreeSet;

use prezero::Size;

use crate::figure::{Against, Figure};
use crate::peers::PREZERO;
use prezero_cli::samples::{self, Change};

/// A peer that takes at most so many times what the fastest takes may turn out to be the fastest.
const CONTENDS: f64 = 1.1;
/// The share of the limit that counts as the limit.
const NEAR_LIMIT: f64 = 0.9;
/// The limit of an allocator that spares others; and the limit of any.
const LIMIT: &str = "limit";
const IDEAL: &str = "ideal";

/// Nanoseconds of each round, in passes of which each has processes of its own.
#[derive(Clone, PartialEq, Default, Debug)]
pub struct Passes(Vec<Vec<f64>>);

impl Passes {
    /// Of one pass; `None` without samples.
    pub fn of(samples: Vec<f64>) -> Option<Passes> {
        (!samples.is_empty()).then(|| Passes(vec![samples]))
    }

    fn median(&self) -> f64 {
        samples::median(&self.0.concat()).unwrap_or(f64::MAX)
    }

    fn medians(&self) -> Vec<f64> {
        self.0.iter().filter_map(|pass| samples::median(pass)).collect()
    }
}

/// An allocator, or what was tried beside the allocators.
#[derive(Clone, PartialEq, Debug)]
pub struct Timed {
    /// Which; of the ideal, engine and place.
    pub who: String,
    /// Its rounds.
    pub ns: Passes,
    /// Whether it takes more of a cache that others use as well than prezero may.
    pub crowds: bool,
}

/// One size and number of lines.
#[derive(Clone, Debug)]
pub struct Cell {
    /// Of the block.
    pub bytes: usize,
    /// Touched in each page.
    pub lines: usize,
    /// The allocators.
    pub results: Vec<Timed>,
    /// The same rounds on scrubbed memory without an allocator, one entry for each way of
    /// scrubbing; without a pause a bare loop, which clears one block of its own again and again.
    pub ideal: Vec<Timed>,
    /// Each peer's malloc and free after a pause, nothing cleared or touched.
    pub calls: Vec<Timed>,
}

/// What cells of a mode are to reach: times as good as the best peer, and as the ideal.
#[derive(Clone, Copy, Debug)]
pub struct Wanted {
    /// The best peer.
    pub best: f64,
    /// The ideal.
    pub ideal: Option<f64>,
}

fn fastest<'a>(all: impl IntoIterator<Item = &'a Timed>) -> Option<&'a Timed> {
    all.into_iter().min_by(|a, b| a.ns.median().total_cmp(&b.ns.median()))
}

impl Cell {
    /// Adds another pass over the same cell, by the same ways and some or all of the allocators.
    pub fn add(&mut self, again: Cell) {
        for (all, again) in [
            (&mut self.results, again.results),
            (&mut self.ideal, again.ideal),
            (&mut self.calls, again.calls),
        ] {
            for again in again {
                let known = all.iter_mut().find(|known| known.who == again.who);
                known.into_iter().for_each(|known| known.ns.0.extend(again.ns.0.clone()));
            }
        }
    }

    fn ours(&self) -> Option<&Timed> {
        self.results.iter().find(|result| result.who == PREZERO)
    }

    /// The fastest peer.
    fn best(&self) -> Option<&Timed> {
        fastest(self.results.iter().filter(|result| result.who != PREZERO))
    }

    /// How many times as good as something that took so long in each pass; noise is what differs from pass
    /// to pass, most of it the memory that a process has.
    fn against(&self, what: &str, peer: &str, ns: &Passes) -> Option<Against> {
        let ours = self.ours()?;
        let times = ns.median() / ours.ns.median();
        let (theirs, mut own) = (ns.medians(), ours.ns.medians());
        own.truncate(theirs.len());
        let pairs = Some(()).filter(|()| own.len() > 1);
        let noise =
            pairs.and_then(|()| Change::of(&theirs, &own)).map(|Change { change, noise }| {
                // It is told of the medians of all samples.
                noise + (times - 1.0 - change).abs()
            });
        Some(Against { noise, ..Against::new(what, peer, times) })
    }

    /// Whether the ratio to the best peer is known to so much, or there is no peer.
    pub fn is_known(&self, to: f64) -> bool {
        let best = self.best().and_then(|best| self.against("best", &best.who, &best.ns));
        best.is_none_or(|best| best.noise.is_some_and(|noise| noise <= to))
    }

    /// The ideal of the ways that leave others their cache, and after a pause a call to get the memory.
    fn limit(&self) -> Option<Timed> {
        let sparing = fastest(self.ideal.iter().filter(|tried| !tried.crowds))?;
        let call = fastest(&self.calls);
        let calls = call.map_or(vec![], |call| call.ns.medians());
        let add = |(nth, pass): (usize, &Vec<f64>)| {
            let call = calls.get(nth).or(calls.last()).copied().unwrap_or(0.0);
            pass.iter().map(|ns| ns + call).collect()
        };
        let ns = Passes(sparing.ns.0.iter().enumerate().map(add).collect());
        Some(Timed { ns, ..sparing.clone() })
    }

    /// The peers that may be the fastest in some such cell, and prezero.
    pub fn contenders(cells: &[Cell]) -> BTreeSet<String> {
        let near = |cell: &Cell| {
            let best = cell.best().map_or(f64::MAX, |best| best.ns.median());
            let near =
                |result: &&Timed| result.who == PREZERO || result.ns.median() <= CONTENDS * best;
            cell.results.iter().filter(near).map(|result| result.who.clone()).collect::<Vec<_>>()
        };
        cells.iter().flat_map(near).collect()
    }

    /// A figure for each allocator, the ideal and the limit, and how prezero's compares with them.
    pub fn figures(&self, wanted: Wanted) -> Vec<Figure> {
        let case = [Size(self.bytes).to_string(), self.lines.to_string()];
        let case = case.each_ref().map(String::as_str);
        let figure = |who: &str, ns: &Passes| {
            let us = ns.0.concat().into_iter().map(|ns| ns / 1e3).collect();
            Some(Figure::of_samples(who, "round", "us", us)?.case(&case))
        };
        let mut all: Vec<_> =
            self.results.iter().filter_map(|each| figure(&each.who, &each.ns)).collect();
        let (limit, ideal) = (self.limit(), fastest(&self.ideal));
        let with_pause = !self.calls.is_empty();
        for (who, tried) in [(LIMIT, limit.as_ref()), (IDEAL, ideal.filter(|_| with_pause))] {
            all.extend(tried.and_then(|tried| Some(figure(who, &tried.ns)?.control())));
        }
        let best = self.best().and_then(|best| self.against("best", &best.who, &best.ns));
        let to_limit = limit.and_then(|limit| self.against(LIMIT, &limit.who, &limit.ns));
        let to_ideal = ideal
            .filter(|_| with_pause)
            .and_then(|ideal| self.against(IDEAL, &ideal.who, &ideal.ns));
        let at_limit = to_limit.as_ref().is_some_and(|it| it.times >= NEAR_LIMIT);
        let best = best.map(|best| Against { at_limit, ..best.wanted(wanted.best) });
        let to_ideal = to_ideal.map(|it| Against { wanted: wanted.ideal, ..it });
        if let Some(ours) = all.iter_mut().find(|figure| figure.who == PREZERO) {
            ours.against = [best, to_limit, to_ideal].into_iter().flatten().collect();
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use prezero_cli::samples::Judged;

    const WANTED: Wanted = Wanted { best: 0.97, ideal: Some(0.85) };

    fn timed(who: &str, passes: &[f64]) -> Timed {
        let ns = Passes(passes.iter().map(|&ns| vec![ns]).collect());
        Timed { who: who.into(), ns, crowds: false }
    }

    /// A cell in which allocators took so long in each pass.
    fn cell(results: &[(&str, &[f64])]) -> Cell {
        let results = results.iter().map(|(who, passes)| timed(who, passes)).collect();
        Cell { bytes: 65536, lines: 1, results, ideal: vec![], calls: vec![] }
    }

    fn against(cell: &Cell, what: &str) -> Option<Against> {
        let figures = cell.figures(WANTED);
        let ours = figures.iter().find(|figure| figure.who == PREZERO)?;
        ours.against.iter().find(|against| against.what == what).cloned()
    }

    #[test]
    fn the_ideal_is_the_best_way_and_the_limit_one_that_spares_others_with_a_call() {
        let mut cell = cell(&[("glibc", &[400.0]), (PREZERO, &[200.0])]);
        cell.ideal = vec![timed("stosb away", &[300.0]), timed("stosb home", &[160.0])];
        cell.calls = vec![timed("glibc", &[50.0]), timed("tcmalloc", &[30.0])];
        let told = |cell: &Cell, what| against(cell, what).map(|it| (it.times, it.peer)).unwrap();
        assert_eq!(told(&cell, "best"), (2.0, "glibc".into()));
        assert_eq!(told(&cell, IDEAL), (0.8, "stosb home".into()));
        assert_eq!(told(&cell, LIMIT), (0.95, "stosb home".into()), "which has a call in it");
        cell.ideal.push(Timed { crowds: true, ..timed("plain home", &[120.0]) });
        assert_eq!(told(&cell, IDEAL), (0.6, "plain home".into()), "whatever it does to others");
        assert_eq!(told(&cell, LIMIT), (0.95, "stosb home".into()), "which spares them");
        assert!(against(&cell, "best").unwrap().at_limit);
        cell.calls.clear();
        assert!(against(&cell, IDEAL).is_none(), "without a pause there is a bare loop alone");
        assert!(!against(&cell, "best").unwrap().at_limit, "0.8 of it is not near");
    }

    #[test]
    fn differences_between_passes_are_noise_and_a_drift_of_all_is_none() {
        let drifts = cell(&[("glibc", &[95.0, 190.0, 285.0]), (PREZERO, &[100.0, 200.0, 300.0])]);
        let best = against(&drifts, "best").unwrap();
        assert!(best.noise.unwrap() < 1e-9 && best.judged() == Some(Judged::Beyond), "{best:?}");
        assert!(drifts.is_known(0.02));
        let noisy = cell(&[("glibc", &[95.0, 95.0, 120.0]), (PREZERO, &[100.0, 100.0, 100.0])]);
        let best = against(&noisy, "best").unwrap();
        assert!((best.noise.unwrap() - 0.25).abs() < 1e-9, "{best:?}");
        assert_eq!(best.judged(), Some(Judged::Unclear));
        let one = cell(&[("glibc", &[1.0]), (PREZERO, &[1.0])]);
        assert_eq!(against(&one, "best").unwrap().noise, None, "one pass");
        assert!(!one.is_known(9.0));
        assert!(cell(&[(PREZERO, &[1.0])]).is_known(0.0), "no peer to compare with");
    }

    #[test]
    fn an_allocator_that_may_be_the_fastest_goes_on_and_is_added_to() {
        let mut cells = [
            cell(&[("a", &[100.0]), ("b", &[109.0]), ("c", &[200.0]), (PREZERO, &[500.0])]),
            cell(&[("a", &[100.0]), ("b", &[300.0]), ("c", &[120.0]), (PREZERO, &[50.0])]),
        ];
        let contenders = Cell::contenders(&cells);
        assert_eq!(contenders.iter().map(String::as_str).collect::<Vec<_>>(), ["a", "b", PREZERO]);
        cells[0].add(cell(&[("b", &[111.0]), (PREZERO, &[400.0])]));
        let passes_of = |nth: usize| cells[0].results[nth].ns.medians();
        assert_eq!((passes_of(0), passes_of(1)), (vec![100.0], vec![109.0, 111.0]));
        assert_eq!(passes_of(3), [500.0, 400.0]);
    }
}
