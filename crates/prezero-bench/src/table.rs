//! `bench/cases.toml`: the benchmarks that a command line can say, read once.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use anyhow::{Context, Result, anyhow};
use serde::Deserialize;

/// Words that stand for others in an argument: `{NAME}`.
pub type Words = BTreeMap<String, String>;

/// The whole file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cases {
    /// What an option takes, and what it is.
    pub options: BTreeMap<String, [String; 2]>,
    arms: BTreeMap<String, Arm>,
    pub benchmarks: BTreeMap<String, Benchmark>,
    pub ablate: Ablate,
}

/// One benchmark.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Benchmark {
    pub about: String,
    pub example: String,
    /// More for its help.
    #[serde(default)]
    pub more: String,
    /// Options beside those of all, and their defaults.
    #[serde(default)]
    pub options: Words,
    /// Runs of each row under each arm, and how few are too few.
    pub runs: Option<usize>,
    #[serde(default)]
    pub least: usize,
    /// Faulted in and given back before.
    pub warm: Option<String>,
    /// The title of a table of costs.
    pub costs: Option<String>,
    /// Further words for a value of an axis.
    #[serde(default)]
    pub values: BTreeMap<String, Words>,
    pub sheet: Vec<Sheet>,
}

/// One table.
#[derive(Deserialize)]
pub struct Sheet {
    /// For `--only`, where its rows are no names.
    #[serde(default)]
    pub name: String,
    pub title: String,
    #[serde(default)]
    pub notes: Vec<String>,
    pub labels: Vec<String>,
    #[serde(flatten)]
    pub program: Program,
    pub figures: Vec<String>,
    #[serde(flatten)]
    pub asked: Asked,
    #[serde(flatten)]
    pub posted: Posted,
    /// Words that mean nothing.
    #[cfg(test)]
    #[serde(flatten)]
    pub rest: BTreeMap<String, toml::Value>,
}

/// What runs.
#[derive(Default, Deserialize)]
#[serde(default)]
pub struct Program {
    #[serde(rename = "program")]
    pub named: String,
    pub arguments: Option<String>,
    pub rows: Vec<Listed>,
    pub axes: Vec<String>,
    /// Any word that `--only` names is a row.
    pub any: bool,
    pub arms: Vec<Arm>,
    pub runs: Option<usize>,
    /// Of a lease: how large, where no axis says.
    pub bytes: Option<String>,
    /// Half of the size that the axis says.
    pub half: bool,
    /// Leases that lie ready [1].
    pub keep: Option<u64>,
    /// Pages that are needed: those of a pool.
    pub pages: Option<String>,
    /// Faulted in and given back before each run.
    pub warm: Option<String>,
}

/// What the figures are compared with, and what is wanted.
#[derive(Default, Deserialize)]
#[serde(default)]
pub struct Asked {
    pub base: Option<String>,
    /// What prezero is to be of the base, by figure.
    pub wanted: BTreeMap<String, f64>,
    /// What prezero is to be of the peer that has the least, by figure.
    pub least: BTreeMap<String, f64>,
    /// What a figure is to be at most, and of which arm alone.
    pub most: BTreeMap<String, f64>,
    pub bound: Option<String>,
    /// Of the best peer; 0: nothing is wanted.
    pub best: Option<f64>,
    /// The arm with which nothing can be faster.
    pub limit: Option<String>,
    /// Turns of base, limit and prezero go on until their ratio is known so well.
    pub width: Option<f64>,
    /// A zone's counters by row, of an uncounted run.
    pub counters: bool,
}

/// What a post printed and says; see `posts`.
#[derive(Default, Deserialize)]
#[serde(default)]
pub struct Posted {
    pub post: Vec<Vec<toml::Value>>,
    pub claims: Vec<Claim>,
    pub same: Vec<String>,
    pub elsewhere: Option<Elsewhere>,
    /// The first values of a longer list that do not count.
    pub skip: usize,
}

/// A row: its words are its labels and its arguments, or all of it is said.
#[derive(Clone, Deserialize)]
#[serde(untagged)]
pub enum Listed {
    Words(String),
    #[serde(rename_all = "kebab-case")]
    Said {
        of: Vec<String>,
        #[serde(default)]
        program: Option<String>,
        arguments: String,
        #[serde(default)]
        stdin: Option<String>,
        #[serde(default)]
        runs: Option<usize>,
        #[serde(default)]
        arms: Option<Vec<Arm>>,
    },
}

/// What a program runs under: the name of an arm of the file, of a peer, or all of it.
#[derive(Clone, Deserialize)]
#[serde(untagged)]
pub enum Arm {
    Named(String),
    Said(Box<Said>),
}

/// All of an arm.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Said {
    pub name: String,
    /// The allocator; `library`: prezero's, without its command.
    pub of: String,
    pub environment: Words,
    /// Behind the row's.
    pub arguments: String,
    /// Of its broker; `none`: there is none to be found.
    pub backing: Option<String>,
    /// Options of `prezero claim`, which runs the program.
    pub claim: Option<String>,
    /// Lines of its broker's configuration.
    pub config: String,
    /// Pages that are needed: those of a pool.
    pub pages: Option<String>,
    pub base: Option<String>,
    pub wanted: Option<f64>,
}

/// What a post says: a figure of one column and row, against another.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Claim {
    pub says: String,
    pub figure: String,
    pub own: Vec<String>,
    pub other: Vec<String>,
    pub least: Option<f64>,
    pub most: Option<f64>,
}

/// What lines from elsewhere are to gain on their base.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Elsewhere {
    pub says: String,
    pub figure: String,
    pub of: Vec<String>,
    pub least: f64,
}

/// Rows of `bench ablate`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ablate {
    /// How many run at once, seconds that count, names.
    pub at_once: Vec<(usize, f64, String)>,
    /// Memory of a cgroup, by row.
    pub limit: Words,
    /// Where a mechanism may matter.
    pub mechanisms: Words,
}

/// The file, as this program was built with it.
pub static CASES: LazyLock<Cases> = LazyLock::new(|| {
    let text = include_str!("../../../bench/cases.toml");
    match toml::from_str(text) {
        Ok(cases) => cases,
        Err(error) => panic!("bench/cases.toml: {error}"),
    }
});

impl Cases {
    /// All that is known of an arm; a name alone is that of an allocator.
    pub fn arm(&self, arm: &Arm) -> Said {
        let said = match arm {
            Arm::Said(said) => said.as_ref().clone(),
            Arm::Named(name) => match self.arms.get(name) {
                Some(Arm::Said(said)) => Said { name: name.clone(), ..said.as_ref().clone() },
                _ => Said { name: name.clone(), of: name.clone(), ..Said::default() },
            },
        };
        let of = if said.of.is_empty() { "glibc".into() } else { said.of };
        Said { of, ..said }
    }
}

/// A text with the words that are known in place of `{NAME}`.
pub fn filled(text: &str, words: &Words) -> String {
    words
        .iter()
        .fold(text.into(), |text: String, (name, word)| text.replace(&format!("{{{name}}}"), word))
}

/// A figure: its name, its unit, whether more of it is better, where it stands, and what it is divided by.
pub struct Named {
    pub name: String,
    pub unit: String,
    pub more: bool,
    /// As a JSON pointer; `None`: the next number that the program prints.
    pub key: Option<String>,
    pub by: f64,
}

impl Named {
    /// Of `NAME, UNIT = KEY / N`.
    pub fn read(text: &str) -> Result<Named> {
        let (head, key) =
            text.split_once(" = ").map_or((text, None), |(head, key)| (head, Some(key)));
        let (more, head) = head.strip_prefix('+').map_or((false, head), |head| (true, head));
        let (name, unit) = head.split_once(", ").unwrap_or((head, ""));
        let (key, by) = match key.and_then(|key| key.split_once(" / ")) {
            Some((key, by)) => (Some(key), by.parse().context("a divisor")?),
            None => (key, 1.0),
        };
        let key = key.map(String::from);
        Ok(Named { name: name.into(), unit: unit.into(), more, key, by })
    }

    /// Of a sheet.
    pub fn all(sheet: &Sheet) -> Result<Vec<Named>> {
        sheet.figures.iter().map(|text| Named::read(text)).collect()
    }
}

impl Listed {
    /// Its labels: its words, if they are as many.
    pub fn of(&self, labels: usize) -> Vec<String> {
        match self {
            Listed::Said { of, .. } => of.clone(),
            Listed::Words(text) if labels == 1 => vec![text.clone()],
            Listed::Words(text) => text.split(' ').map(String::from).collect(),
        }
    }
}

/// A size as in `512M`, in bytes.
pub fn bytes(text: &str) -> Result<usize> {
    let size = text.parse::<prezero::Size>().map_err(|why| anyhow!("{text}: {why}"))?;
    Ok(size.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_case_is_whole() {
        for (name, case) in &CASES.benchmarks {
            for option in case.options.keys() {
                assert!(CASES.options.contains_key(option), "{name}: --{option} is no option");
            }
            for sheet in &case.sheet {
                let figures = Named::all(sheet).unwrap();
                assert!(
                    sheet.rest.is_empty() && !sheet.program.arms.is_empty(),
                    "{name}: {:?}",
                    sheet.rest.keys()
                );
                assert!(
                    sheet.program.rows.is_empty() != sheet.program.axes.is_empty(),
                    "{name}: {}",
                    sheet.title
                );
                for row in &sheet.program.rows {
                    assert_eq!(
                        row.of(sheet.labels.len()).len(),
                        sheet.labels.len(),
                        "{name}: {}",
                        sheet.title
                    );
                }
                for axis in &sheet.program.axes {
                    assert!(case.options.contains_key(axis), "{name}: no option {axis}");
                }
                let named = |name: &String| figures.iter().any(|figure| figure.name == *name);
                let bounds = sheet
                    .asked
                    .wanted
                    .keys()
                    .chain(sheet.asked.least.keys())
                    .chain(sheet.asked.most.keys());
                assert!(
                    bounds.chain(sheet.posted.claims.iter().map(|claim| &claim.figure)).all(named),
                    "{name}"
                );
                let width = sheet.labels.len() + 1 + figures.len();
                assert!(
                    sheet.posted.post.iter().all(|row| row.len() == width),
                    "{name}: {}",
                    sheet.title
                );
            }
        }
    }

    #[test]
    fn figures_and_words_are_read() {
        let figure = Named::read("+to it, GB/s = us/median / 1024").unwrap();
        assert_eq!(
            (figure.name.as_str(), figure.unit.as_str(), figure.more),
            ("to it", "GB/s", true)
        );
        assert_eq!((figure.key.as_deref(), figure.by), (Some("us/median"), 1024.0));
        let words = Words::from([("row".into(), "1M".into())]);
        assert_eq!(filled("{row} of {lease}", &words), "1M of {lease}");
    }
}
