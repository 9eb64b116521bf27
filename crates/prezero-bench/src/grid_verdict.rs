//! What the cells of a mode of the grid come to, beside what was wanted of it.

use super::grid_report::{Cell, Mode, ModeReport};
use super::peers::PREZERO;
use super::samples::{Judged, geometric_mean};

/// What the cells of a mode come to.
#[derive(Debug)]
pub struct Verdict<'a> {
    /// Geometric mean of the best peers' times over prezero's.
    pub mean: f64,
    /// The smallest of those ratios, and its cell.
    pub worst: (f64, &'a Cell),
    /// Cells where the ratio is below one.
    pub lost: usize,
    /// Cells that are below what the mode wants, and those of which one cannot tell.
    pub below: Vec<&'a Cell>,
    /// See `below`.
    pub unclear: Vec<&'a Cell>,
    /// The smallest share of the ideal, and its cell.
    pub ideal: Option<(f64, &'a Cell)>,
    /// The best peers' times over the limit's: geometric mean, and the smallest of them.
    pub limit: Option<(f64, f64)>,
    /// Cells that are not as good as the limit, and those of which one cannot tell.
    pub far: usize,
    /// See `far`.
    pub far_or_not: usize,
    /// The smallest share of the limit, and its cell.
    pub of_limit: Option<(f64, &'a Cell)>,
}

/// What a mode is to reach.
#[derive(Clone, Copy, Debug)]
pub struct Wanted {
    /// Geometric mean, at least.
    pub mean: Option<f64>,
    /// Worst cell, at least.
    pub worst: f64,
    /// Worst share of the ideal, at least.
    pub ideal: Option<f64>,
}

impl Mode {
    /// What it is to reach.
    pub fn wanted(self) -> Wanted {
        match self {
            Mode::Idle => Wanted { mean: Some(4.5), worst: 1.1, ideal: Some(0.85) },
            Mode::BackToBack | Mode::Busy => Wanted { mean: None, worst: 0.97, ideal: None },
        }
    }
}

impl ModeReport {
    /// `None` unless prezero and a peer ran.
    pub fn verdict(&self) -> Option<Verdict<'_>> {
        let ratios = self.cells.iter().filter_map(|cell| Some((cell.best()?.0, cell)));
        let shares = self.cells.iter().filter_map(|cell| Some((cell.share_of_ideal()?, cell)));
        let of_limit = self.cells.iter().filter_map(|cell| Some((cell.share_of_limit()?, cell)));
        let least = |a: &(f64, &Cell), b: &(f64, &Cell)| a.0.total_cmp(&b.0);
        let judged = |as_what| {
            let is = |cell: &&Cell| cell.judged(self.mode.wanted().worst) == Some(as_what);
            self.cells.iter().filter(is).collect()
        };
        let by_limit = |as_what| {
            let is = |cell: &&Cell| cell.judged_by_limit() == Some(as_what);
            self.cells.iter().filter(is).count()
        };
        Some(Verdict {
            far: by_limit(Judged::Beyond),
            far_or_not: by_limit(Judged::Unclear),
            below: judged(Judged::Beyond),
            unclear: judged(Judged::Unclear),
            mean: geometric_mean(ratios.clone().map(|(ratio, _)| ratio))?,
            worst: ratios.clone().min_by(least)?,
            lost: ratios.filter(|(ratio, _)| *ratio < 1.0).count(),
            ideal: shares.min_by(least),
            limit: limits(&self.cells),
            of_limit: of_limit.min_by(least),
        })
    }

    /// The peer that does best where each is held against the other peers, by its worst cell: who is
    /// level with the best loses cells by so much, to whichever of them was lucky there.
    pub fn yardstick(&self) -> Option<Yardstick<'_>> {
        let least = |a: &(f64, &Cell), b: &(f64, &Cell)| a.0.total_cmp(&b.0);
        let peers = self.cells.first()?.results.iter().map(|result| result.allocator.as_str());
        let judged = peers.filter(|&peer| peer != PREZERO).filter_map(|peer| {
            let ratios =
                self.cells.iter().filter_map(|cell| Some((cell.best_beside(peer)?.0, cell)));
            Some(Yardstick { peer, worst: ratios.min_by(least)? })
        });
        judged.max_by(|a, b| a.worst.0.total_cmp(&b.worst.0))
    }
}

/// How a peer does by the measure that prezero has to meet.
#[derive(Debug)]
pub struct Yardstick<'a> {
    /// Which.
    pub peer: &'a str,
    /// Its smallest ratio, and the cell.
    pub worst: (f64, &'a Cell),
}

fn limits(cells: &[Cell]) -> Option<(f64, f64)> {
    let ratio = |cell: &Cell| Some(cell.best()?.0 / cell.share_of_limit()?);
    let ratios = cells.iter().filter_map(ratio);
    Some((geometric_mean(ratios.clone())?, ratios.min_by(f64::total_cmp)?))
}
