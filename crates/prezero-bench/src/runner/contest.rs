//! Programs that run from their start to their end, in several ways and in turns.
//!
//! | word | meaning |
//! |---|---|
//! | row | a program with its arguments: a row of the table |
//! | way | the allocator, its settings and further arguments: a column |
//! | run | what the program printed, what the kernel says that it used, and a zone's statistics |

use std::fs::File;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use prezero_command::companion;
use prezero_command::spent::{Spent, Started};
use serde_json::Value;

use super::turns::in_turns;
use crate::peers::{Allocator, NOWHERE};
use crate::progress::{kept, step};
use crate::scratch::Scratch;
use crate::table::Said;

/// A row.
#[derive(Clone, Debug, Default)]
pub struct Row {
    /// One word for each label of the table.
    pub of: Vec<String>,
    pub program: PathBuf,
    pub arguments: Vec<String>,
    pub stdin: Option<PathBuf>,
    /// Bytes of a lease.
    pub bytes: u64,
}

/// A way.
#[derive(Clone, Debug)]
pub struct Way {
    pub name: String,
    pub allocator: Allocator,
    /// The `prezero` of another build.
    pub prezero: Option<PathBuf>,
    pub arguments: Vec<String>,
    /// What runs in place of the row's program and its arguments.
    pub instead: Option<(PathBuf, Vec<String>)>,
    /// What the file says of it.
    pub said: Said,
}

impl Way {
    pub fn of(allocator: &Allocator) -> Way {
        let (name, allocator) = (allocator.name.clone(), allocator.clone());
        Way {
            name,
            allocator,
            prezero: None,
            arguments: vec![],
            instead: None,
            said: Said::default(),
        }
    }

    /// Another program beside the allocators, without any of them.
    pub fn beside(name: &str, program: &Path, arguments: &[&str]) -> Way {
        let arguments = arguments.iter().map(ToString::to_string).collect();
        let instead = Some((program.into(), arguments));
        Way { name: name.into(), instead, ..Way::of(&Allocator::plain()) }
    }

    fn command(&self, row: &Row, stats: &Path) -> Result<Command> {
        let (program, arguments) = match &self.instead {
            Some((program, arguments)) => (program, arguments),
            None => (&row.program, &row.arguments),
        };
        let mut command = match &self.said.claim {
            None => self.allocator.command(program, stats)?,
            Some(options) => {
                let prezero = companion::find(companion::PREZERO)?;
                let mut claim = self.allocator.command(&prezero, stats)?;
                claim
                    .arg("claim")
                    .arg(row.bytes.to_string())
                    .args(options.split_whitespace())
                    .arg("--")
                    .arg(program);
                claim
            }
        };
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
        command.args(arguments).args(&self.arguments);
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

/// One that is under way.
struct Begun {
    named: String,
    started: Started,
    out: PathBuf,
    err: PathBuf,
    stats: Option<PathBuf>,
}

/// The ways in which rows run.
pub struct Contest<'a> {
    /// For the progress.
    pub name: &'a str,
    pub ways: &'a [Way],
    /// Whether statistics are wanted, and what the program prints.
    pub stats: bool,
    pub prints: bool,
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
        self.end(self.begin(way, row, 0)?)
    }

    /// A run in each of several ways, all at once; of each, how it ended.
    pub fn at_once(&self, ways: &[&Way], row: &Row) -> Result<Vec<Result<Run>>> {
        let begun: Vec<_> = ways
            .iter()
            .enumerate()
            .map(|(nth, way)| self.begin(way, row, nth))
            .collect::<Result<_>>()?;
        Ok(begun.into_iter().map(|each| self.end(each)).collect())
    }

    fn begin(&self, way: &Way, row: &Row, nth: usize) -> Result<Begun> {
        let counts = self.stats && way.allocator.is_prezero();
        let [out, err, stats] =
            ["out", "err", "stats"].map(|name| self.scratch.file(format!("{name}-{nth}")));
        let stats = counts.then_some(stats);
        let mut command = way.command(row, stats.as_deref().unwrap_or(NOWHERE.as_ref()))?;
        command.stdin(match &row.stdin {
            Some(file) => File::open(file)?.into(),
            None => Stdio::null(),
        });
        command.stdout(if self.prints { File::create(&out)?.into() } else { Stdio::null() });
        command.stderr(File::create(&err)?);
        // The order of lines and letters must be the same on each machine.
        command.env("LC_ALL", "C").env("PYTHONHASHSEED", "0");
        let named = format!("{}: {} under {}", self.name, row.of.join(" "), way.name);
        let started = Started::start(&mut command).with_context(|| named.clone())?;
        Ok(Begun { named, started, out, err, stats })
    }

    fn end(&self, Begun { named, started, out, err, stats }: Begun) -> Result<Run> {
        let (spent, status) = started.end().with_context(|| named.clone())?;
        let complaint = std::fs::read_to_string(&err).unwrap_or_default();
        let last = complaint.trim().lines().last().unwrap_or_default();
        ensure!(status.success(), "{named}: it ended with {status}: {last}");
        let stats = match stats {
            Some(file) => serde_json::from_str(&std::fs::read_to_string(file).unwrap_or_default())
                .unwrap_or_default(),
            None => Value::Null,
        };
        let said = if self.prints { std::fs::read(&out)? } else { vec![] };
        Ok(Run { said: String::from_utf8_lossy(&said).into_owned(), spent, stats })
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
        let (touch, scratch) = (Program::find("touch").unwrap(), Scratch::new().unwrap());
        let ways = [Way::of(&field.allocators[0])];
        let contest =
            Contest { name: "touch", ways: &ways, stats: false, prints: true, scratch: &scratch };
        let row = |words: &str| Row {
            of: vec!["1M".into()],
            program: touch.path(),
            arguments: words.split(' ').map(String::from).collect(),
            ..Row::default()
        };
        let taken = contest.row(&row("round 1048576 1 0 0 100000"), 2).unwrap().unwrap();
        assert_eq!((taken.len(), taken[0].len()), (1, 2));
        for run in &taken[0] {
            assert!(run.numbers().unwrap()[0] > 0.0, "{run:?}");
            assert!(run.spent.faults < 1000.0, "256 pages, once: {run:?}");
        }
        let error = contest.once(&ways[0], &row("nonsense")).unwrap_err().to_string();
        assert!(error.starts_with("touch: 1M under glibc-keep: it ended with"), "{error}");
        assert!(error.contains("usage: touch round"), "{error}");
        let both =
            contest.at_once(&[&ways[0], &ways[0]], &row("round 65536 1 0 0 100000")).unwrap();
        assert!(both.iter().all(|run| run.as_ref().unwrap().numbers().unwrap()[0] > 0.0));
    }
}
