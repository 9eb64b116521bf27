//! What was played, as figures: `prezero bench` makes tables of them.

use anyhow::{Result, bail};

/// Which of two figures is the better one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Better {
    /// The smaller.
    Less,
    /// The larger.
    More,
    /// Neither.
    Neither,
}

/// One number: of which case, under which rule, and what it is.
#[derive(Clone, PartialEq, Debug)]
pub struct Figure {
    /// A word for each label of the sheet.
    pub of: Vec<String>,
    /// The rule.
    pub who: String,
    /// What it is.
    pub name: String,
    /// In which unit.
    pub unit: String,
    /// The number.
    pub value: f64,
    /// Which way is better.
    pub better: Better,
}

impl Figure {
    /// The less the better, of no case.
    pub fn new(who: &str, name: &str, unit: &str, value: f64) -> Figure {
        let [who, name, unit] = [who, name, unit].map(String::from);
        Figure { of: vec![], who, name, unit, value, better: Better::Less }
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
}

/// Figures that are read together.
#[derive(Clone, PartialEq, Debug)]
pub struct Sheet {
    /// What it shows.
    pub title: &'static str,
    /// What the words of a case are.
    pub labels: &'static [&'static str],
    /// How it is to be read, a sentence each.
    pub notes: Vec<String>,
    /// All of it.
    pub figures: Vec<Figure>,
}

impl Sheet {
    /// Without figures.
    pub fn new(title: &'static str, labels: &'static [&'static str]) -> Sheet {
        Sheet { title, labels, notes: vec![], figures: vec![] }
    }

    /// With a sentence.
    pub fn note(mut self, note: impl Into<String>) -> Sheet {
        self.notes.push(note.into());
        self
    }

    /// Adds figures.
    pub fn extend(&mut self, figures: impl IntoIterator<Item = Figure>) {
        self.figures.extend(figures);
    }

    /// A value by rule, case and name.
    pub fn value(&self, who: &str, of: &[&str], name: &str) -> Option<f64> {
        let is = |each: &&Figure| each.who == who && each.name == name && each.of == of;
        self.figures.iter().find(is).map(|figure| figure.value)
    }
}

/// Tables, and notes on all of them.
pub type Played = (Vec<String>, Vec<Sheet>);

/// How far it is; an error ends it, with what was played until then.
pub trait Progress {
    /// The steps to come.
    fn expect(&self, steps: usize);
    /// The next step begins.
    ///
    /// # Errors
    /// The user wants no more.
    fn step(&self, label: &str) -> Result<()>;
    /// Whether the user wants no more.
    fn interrupted() -> bool;
}

/// Those of `all` that are in `only`, or all of them if it is empty.
///
/// # Errors
/// One that is asked for is not among them; `what` they are is said.
pub fn chosen<'a, T>(
    all: &'a [T],
    name: impl Fn(&'a T) -> &'a str,
    only: &[String],
    what: &str,
) -> Result<Vec<&'a T>> {
    let names: Vec<_> = all.iter().map(&name).collect();
    if let Some(unknown) = only.iter().find(|only| !names.contains(&only.as_str())) {
        bail!("--only {unknown}: no such {what}; give some of {}", names.join(","));
    }
    let asked = |each: &&'a T| only.is_empty() || only.iter().any(|it| it == name(each));
    Ok(all.iter().filter(asked).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_is_asked_for_is_chosen_or_reported() {
        let only = |words: &[&str]| words.iter().map(ToString::to_string).collect::<Vec<_>>();
        let of = |words: &[&str]| chosen(&["a", "b"], |word| word, &only(words), "letter");
        assert_eq!((of(&[]).unwrap(), of(&["b"]).unwrap()), (vec![&"a", &"b"], vec![&"b"]));
        let error = of(&["c"]).unwrap_err().to_string();
        assert_eq!(error, "--only c: no such letter; give some of a,b");
    }
}
