//! Programs that run from their start to their end, in several ways and in turns.
//!
//! | word | meaning |
//! |---|---|
//! | row | arguments of the program: a row of the table |
//! | way | the allocator, its settings and further arguments: a column |
//! | run | what the program printed, what the kernel says that it used, and a zone's statistics |

use std::fs::File;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use prezero_cli::spent::{Spent, Started};
use serde_json::Value;

use crate::peers::{Allocator, NOWHERE};
use crate::progress::{kept, step};
use crate::scratch::Scratch;
use crate::turns::in_turns;

/// A row.
#[derive(Clone, Debug)]
pub struct Row {
    /// One word for each label of the table.
    pub of: Vec<String>,
    pub arguments: Vec<String>,
}

impl Row {
    pub fn new(of: &[&str], arguments: &[&str]) -> Row {
        let words = |words: &[&str]| words.iter().map(ToString::to_string).collect();
        Row { of: words(of), arguments: words(arguments) }
    }

    /// The figure's case.
    pub fn case(&self) -> Vec<&str> {
        self.of.iter().map(String::as_str).collect()
    }
}

/// A way.
#[derive(Clone, Debug)]
pub struct Way {
    pub name: String,
    pub allocator: Allocator,
    /// The `prezero` of another build.
    pub prezero: Option<PathBuf>,
    pub arguments: Vec<String>,
    /// What runs in place of the program and the row's arguments.
    pub instead: Option<(PathBuf, Vec<String>)>,
}

impl Way {
    pub fn of(allocator: &Allocator) -> Way {
        let name = allocator.name.clone();
        Way { name, allocator: allocator.clone(), prezero: None, arguments: vec![], instead: None }
    }

    /// Another program beside the allocators, without any of them.
    pub fn beside(name: &str, program: &Path, arguments: &[&str]) -> Way {
        let arguments = arguments.iter().map(ToString::to_string).collect();
        let instead = Some((program.into(), arguments));
        Way { name: name.into(), instead, ..Way::of(&Allocator::plain()) }
    }

    /// The same under another name, with knobs and with further arguments of the program.
    pub fn with(mut self, name: &str, knobs: &[(&str, &str)], arguments: &[&str]) -> Way {
        let knobs = knobs.iter().map(|&(knob, value)| (knob.into(), value.into()));
        self.allocator.environment.extend(knobs);
        let arguments = arguments.iter().map(ToString::to_string).collect();
        Way { name: name.into(), arguments, ..self }
    }

    fn command(&self, program: &Path, stats: &Path) -> Result<Command> {
        let mut command = self.allocator.command(program, stats)?;
        if let Some(prezero) = &self.prezero {
            let mut other = Command::new(prezero);
            other.args(command.get_args()).process_group(0);
            for (name, value) in command.get_envs() {
                match value {
                    Some(value) => other.env(name, value),
                    None => other.env_remove(name),
                };
            }
            command = other;
        }
        Ok(command)
    }
}

/// A run.
#[derive(Debug)]
pub struct Run {
    pub said: String,
    pub spent: Spent,
    pub stats: Value,
}

impl Run {
    /// What it printed, if that is numbers.
    pub fn numbers(&self) -> Result<Vec<f64>> {
        let numbers: Result<_, _> = self.said.split_whitespace().map(str::parse).collect();
        numbers.with_context(|| format!("it said {}", self.said.trim()))
    }
}

/// A program, and the ways in which it runs.
pub struct Contest<'a> {
    /// For the progress.
    pub name: &'a str,
    pub program: &'a Path,
    pub ways: &'a [Way],
    /// Whether statistics are wanted.
    pub stats: bool,
    pub scratch: &'a Scratch,
}

impl Contest<'_> {
    /// A row as often in each way; `None`: interrupted.
    pub fn row(&self, row: &Row, runs: usize) -> Result<Option<Vec<Vec<Run>>>> {
        let mut taken: Vec<_> = self.ways.iter().map(|_| vec![]).collect();
        for (_, which) in in_turns(runs, self.ways.len()) {
            let way = &self.ways[which];
            let once = step(&format!("{}: {} under {}", self.name, row.of.join(" "), way.name))
                .and_then(|()| self.once(way, row));
            match kept(once)? {
                Some(run) => taken[which].push(run),
                None => return Ok(None),
            }
        }
        Ok(Some(taken))
    }

    /// One run.
    pub fn once(&self, way: &Way, row: &Row) -> Result<Run> {
        let counts = self.stats && way.allocator.is_prezero();
        let stats = if counts { self.scratch.file("stats") } else { NOWHERE.into() };
        let [out, err] = ["out", "err"].map(|name| self.scratch.file(name));
        let instead = way.instead.as_ref();
        let (program, arguments) = instead
            .map_or((self.program, &row.arguments), |(program, arguments)| (program, arguments));
        let mut command = way.command(program, &stats)?;
        command.args(arguments).args(&way.arguments).stdin(Stdio::null());
        command.stdout(File::create(&out)?).stderr(File::create(&err)?);
        let named = || format!("{}: {} under {}", self.name, row.of.join(" "), way.name);
        let started = Started::start(&mut command).with_context(named)?;
        let (spent, status) = started.end().with_context(named)?;
        let complaint = std::fs::read_to_string(&err).unwrap_or_default();
        let last = complaint.trim().lines().last().unwrap_or_default();
        ensure!(status.success(), "{}: it ended with {status}: {last}", named());
        let stats = match counts {
            true => serde_json::from_str(&std::fs::read_to_string(stats)?)?,
            false => Value::Null,
        };
        Ok(Run { said: String::from_utf8_lossy(&std::fs::read(&out)?).into_owned(), spent, stats })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::peers::Field;
    use crate::worker::Program;

    #[test]
    fn a_kept_heap_takes_no_faults_and_a_run_that_fails_says_why() {
        let field = Field::find(&["glibc-keep".into()]).unwrap();
        let (touch, scratch) = (Program::touch().unwrap(), Scratch::new().unwrap());
        let (program, ways) = (touch.path(), [Way::of(&field.allocators[0])]);
        let (stats, scratch) = (false, &scratch);
        let contest = Contest { name: "touch", program: &program, ways: &ways, stats, scratch };
        let row = Row::new(&["1M"], &["round", "1048576", "1", "0", "0", "100000"]);
        let taken = contest.row(&row, 2).unwrap().unwrap();
        assert_eq!((taken.len(), taken[0].len()), (1, 2));
        for run in &taken[0] {
            assert!(run.numbers().unwrap()[0] > 0.0, "{run:?}");
            assert!(run.spent.faults < 1000.0, "256 pages, once: {run:?}");
        }
        let error = contest.once(&ways[0], &Row::new(&["1M"], &["nonsense"])).unwrap_err();
        let error = error.to_string();
        assert!(error.starts_with("touch: 1M under glibc-keep: it ended with"), "{error}");
        assert!(error.contains("usage: touch round"), "{error}");
    }
}
