//! Figures, the sheets that they stand in, and the report of a run.

use serde::{Deserialize, Serialize};

use crate::machine::Machine;
use crate::peers::{self, Field, PREZERO};
use prezero_host::samples::{self, Judged, judge};

/// Which of two figures is the better one.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Better {
    /// The smaller.
    #[default]
    Less,
    /// The larger.
    More,
    /// Neither.
    Neither,
}

/// One number that was measured.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Figure {
    /// What it is: `wall`, `scrubbed`.
    pub name: String,
    /// In which unit; empty for a plain number.
    pub unit: String,
    /// Of which case: one word for each label of the sheet.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub of: Vec<String>,
    /// What it was taken under: an allocator, a way, a level.
    pub who: String,
    /// The median of the samples, or the only one.
    pub value: f64,
    /// What the value may be off by either way, as a share of it, with some 95 % confidence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub noise: Option<f64>,
    /// Which way is better.
    pub better: Better,
    /// At least so much is wanted, or at most.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wanted: Option<f64>,
    /// Comparisons.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub against: Vec<Against>,
    /// Each, in the order taken; empty for a figure that was taken once.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub samples: Vec<f64>,
}

/// A comparison of a figure with a peer's.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Against {
    /// What the peer is: `best`, `limit`, or its name.
    pub what: String,
    /// Which it is here.
    pub peer: String,
    /// How many times as good as the peer.
    pub times: f64,
    /// What that may be off by, either way, with some 95 % confidence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub noise: Option<f64>,
    /// The least factor that is wanted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wanted: Option<f64>,
    /// No allocator can be better here: what is missed is out of reach.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub at_limit: bool,
}

impl Figure {
    /// One that was taken once.
    pub fn new(who: &str, name: &str, unit: &str, value: f64) -> Figure {
        Figure {
            name: name.into(),
            unit: unit.into(),
            of: vec![],
            who: who.into(),
            value,
            noise: None,
            better: Better::Less,
            wanted: None,
            against: vec![],
            samples: vec![],
        }
    }

    /// The median of samples; `None` of none.
    pub fn of_samples(who: &str, name: &str, unit: &str, samples: Vec<f64>) -> Option<Figure> {
        let value = samples::median(&samples)?;
        let noise = samples::noise(&samples);
        Some(Figure { noise, samples, ..Figure::new(who, name, unit, value) })
    }

    /// Of this case.
    pub fn case(mut self, of: &[&str]) -> Figure {
        self.of = of.iter().map(ToString::to_string).collect();
        self
    }

    /// With that way up.
    pub fn better(self, better: Better) -> Figure {
        Figure { better, ..self }
    }

    #[cfg(test)]
    /// With a bound.
    pub fn wanted(self, bound: f64) -> Figure {
        Figure { wanted: Some(bound), ..self }
    }

    /// Adds a comparison.
    pub fn and(mut self, against: impl IntoIterator<Item = Against>) -> Figure {
        self.against.extend(against);
        self
    }

    /// How many times as good as another.
    pub fn times(&self, other: &Figure) -> f64 {
        match self.better {
            Better::More => self.value / other.value,
            Better::Less | Better::Neither => other.value / self.value,
        }
    }

    /// A comparison with another figure, whose samples were not taken in pairs with these.
    pub fn against(&self, what: &str, other: &Figure) -> Against {
        let times = self.times(other);
        let noise = self.noise.zip(other.noise).map(|(own, other)| own.hypot(other) * times);
        Against { noise, ..Against::new(what, &other.who, times) }
    }

    /// How its bound is kept; `None` without one.
    pub fn judged(&self) -> Option<Judged> {
        let (bound, noise) = (self.wanted?, self.noise.unwrap_or(0.0) * self.value.abs());
        Some(match self.better {
            Better::More => judge(self.value, noise, bound),
            Better::Less | Better::Neither => judge(-self.value, noise, -bound),
        })
    }
}

impl Against {
    /// Without noise or bound.
    pub fn new(what: &str, peer: &str, times: f64) -> Against {
        let (what, peer) = (what.into(), peer.into());
        Against { what, peer, times, noise: None, wanted: None, at_limit: false }
    }

    /// With a bound.
    pub fn wanted(self, times: f64) -> Against {
        Against { wanted: Some(times), ..self }
    }

    /// How its bound is kept; `None` without one.
    pub fn judged(&self) -> Option<Judged> {
        Some(judge(self.times, self.noise.unwrap_or(0.0), self.wanted?))
    }
}

/// What stands side by side in a table.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Across {
    /// What it was taken under: a row is a case.
    #[default]
    Who,
    /// The name: a row is a case under one of those.
    Name,
}

/// Figures that are read together.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Sheet {
    /// What it shows; the same in every run, since readers of JSON find figures by it.
    pub title: String,
    /// What the words of `of` are.
    pub labels: Vec<String>,
    /// What stands side by side.
    pub across: Across,
    /// In which order, by name; the others follow as they come.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub order: Vec<String>,
    /// How it is to be read, and how it was taken: a sentence each.
    #[serde(default)]
    pub notes: Vec<String>,
    /// What it comes to, beside the bounds of its figures: a sentence each.
    #[serde(default)]
    pub says: Vec<String>,
    /// Of the comparisons that are called so, the geometric mean is wanted to be so much.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wanted_mean: Option<(String, f64)>,
    /// What it comes to by its bounds, for readers of JSON: see [`Sheet::judged`].
    #[serde(default)]
    pub verdicts: Vec<String>,
    /// All of it.
    pub figures: Vec<Figure>,
}

impl Sheet {
    /// Without figures.
    pub fn new(title: &str, labels: &[&str], across: Across) -> Sheet {
        let labels = labels.iter().map(ToString::to_string).collect();
        Sheet { title: title.into(), labels, across, ..Sheet::default() }
    }

    /// With a sentence about how it is to be read.
    pub fn note(mut self, note: impl Into<String>) -> Sheet {
        self.notes.push(note.into());
        self
    }

    /// Adds a figure.
    pub fn push(&mut self, figure: Figure) {
        assert_eq!(figure.of.len(), self.labels.len(), "{}: {figure:?}", self.title);
        // Nothing over nothing is no figure; JSON has no word for it.
        if figure.value.is_finite() {
            self.figures.push(figure);
        }
    }

    /// Adds all of them.
    pub fn extend(&mut self, figures: impl IntoIterator<Item = Figure>) {
        figures.into_iter().for_each(|figure| self.push(figure));
    }

    #[cfg(test)]
    /// The figure of a name, of a case, under an allocator, a way or a level.
    pub fn find(&self, who: &str, of: &[&str], name: &str) -> Option<&Figure> {
        self.figures.iter().find(|each| each.who == who && each.name == name && each.of == of)
    }

    /// Compares prezero's figures of that name with the best of the peers' in each row.
    pub fn compare_with_best(&mut self, name: &str, wanted: Option<f64>) {
        let best = |ours: &Figure| {
            let of_name =
                self.figures.iter().filter(|each| each.name == name && each.of == ours.of);
            let rivals = of_name.filter(|each| peers::names().any(|peer| peer == each.who));
            let best = rivals.max_by(|a, b| a.times(b).total_cmp(&b.times(a)))?;
            Some(Against { wanted, ..ours.against("best", best) })
        };
        let ours = |figure: &Figure| figure.who == PREZERO && figure.name == name;
        let each = self.figures.iter().map(|each| best(each).filter(|_| ours(each)));
        for (nth, against) in each.collect::<Vec<_>>().into_iter().enumerate() {
            self.figures[nth].against.extend(against);
        }
    }
}

/// Everything that one run of a benchmark measured.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Report {
    /// Its name.
    pub benchmark: String,
    /// Taken on.
    pub machine: Machine,
    /// Taken with.
    #[serde(flatten)]
    pub field: Field,
    /// What was left out, and why; how all of it was taken.
    pub notes: Vec<String>,
    /// What must be the same in two runs that are to be one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub facts: Vec<(String, String)>,
    /// Its figures.
    pub sheets: Vec<Sheet>,
}

impl Report {
    /// Of nothing yet, on this machine.
    pub fn here(benchmark: &str, field: Field) -> Report {
        Report {
            benchmark: benchmark.into(),
            machine: Machine::here(),
            field,
            notes: vec![],
            facts: vec![],
            sheets: vec![],
        }
    }
}

/// A benchmark: what its command line says, and what it measures.
pub trait Case {
    /// Measures.
    ///
    /// # Errors
    /// Something that it needs is not here, or goes wrong. An interruption is no error: figures
    /// that were measured to their end are returned.
    fn measure(&self) -> anyhow::Result<Report>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_than_once_is_better_whichever_way_is_up() {
        let time = |who: &str, value| Figure::new(who, "wall", "s", value);
        let against = time(PREZERO, 2.0).against("best", &time("glibc", 3.0));
        assert_eq!((against.times, against.peer.as_str()), (1.5, "glibc"));
        let rate = |value| time("x", value).better(Better::More);
        assert_eq!(rate(3.0).times(&rate(2.0)), 1.5);
    }

    #[test]
    fn bounds_are_kept_from_their_side_as_far_as_noise_lets_one_say() {
        let of = |value: f64| Figure::new("x", "n", "", value).wanted(5.0);
        assert_eq!(of(4.0).judged(), Some(Judged::Within));
        assert_eq!(of(5.5).judged(), Some(Judged::Beyond));
        assert_eq!(Figure { noise: Some(0.2), ..of(5.5) }.judged(), Some(Judged::Unclear));
        assert_eq!(of(5.5).better(Better::More).judged(), Some(Judged::Within));
        let times = Against::new("best", "glibc", 1.05).wanted(1.1);
        assert_eq!(times.judged(), Some(Judged::Beyond));
        assert_eq!(Against { noise: Some(0.1), ..times }.judged(), Some(Judged::Unclear));
    }

    #[test]
    fn the_best_peer_is_found_row_by_row() {
        let mut sheet = Sheet::new("t", &["size"], Across::Who);
        for (size, glibc, tcmalloc, ours) in [("1M", 4.0, 3.0, 2.0), ("2M", 1.0, 3.0, 2.0)] {
            for (who, us) in
                [("glibc", glibc), ("tcmalloc", tcmalloc), (PREZERO, ours), ("limit", 0.1)]
            {
                sheet.push(Figure::new(who, "round", "us", us).case(&[size]));
            }
        }
        sheet.compare_with_best("round", Some(1.1));
        let found = |size| {
            let against = &sheet.find(PREZERO, &[size], "round").unwrap().against[0];
            (against.peer.as_str(), against.times, against.wanted)
        };
        assert_eq!(found("1M"), ("tcmalloc", 1.5, Some(1.1)));
        assert_eq!(found("2M"), ("glibc", 0.5, Some(1.1)));
        assert!(sheet.figures.iter().filter(|each| !each.against.is_empty()).count() == 2);
        sheet.push(Figure::new("x", "n", "", f64::NAN).case(&["1M"]));
        assert_eq!(sheet.find("x", &["1M"], "n"), None);
    }
}
