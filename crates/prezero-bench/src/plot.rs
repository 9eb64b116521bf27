//! What `bench/plot.py` makes of figures: one page with pictures, results that are kept, and their index.
//!
//! The command carries the script and gives it what the user asks for.

use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

use crate::machine;
use crate::output::Taken;

const SCRIPT: &str = include_str!("../../../bench/plot.py");
/// Where results are, seen from the repository's root.
pub const FOLDER: &str = "bench/results";

/// The command line of `prezero bench report`.
#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  prezero bench report --quick\n  prezero bench report --from bench/results\n  \
    prezero bench grid --json grid.json && prezero bench report --from grid.json --pictures ."
)]
pub struct Page {
    /// Files of --json, or a folder of kept results [run grid, seeds, waste and disturb]
    #[arg(long, value_delimiter = ',', num_args = 1.., value_name = "FILE")]
    from: Vec<PathBuf>,
    /// Where the page goes
    #[arg(long, short, value_name = "FILE", default_value = "prezero-report.html")]
    output: PathBuf,
    /// Write each picture into a file of its own as well, in this folder
    #[arg(long, value_name = "DIR")]
    pictures: Option<PathBuf>,
    /// Run less of everything: some ten minutes instead of an hour
    #[arg(long, conflicts_with = "from")]
    quick: bool,
    /// A Python that has matplotlib [the first found that has, or none: then tables alone]
    #[arg(long, value_name = "PATH")]
    python: Option<PathBuf>,
}

/// The command line of `prezero bench results`.
#[derive(clap::Args)]
#[command(after_help = "Example: prezero bench results ablate.json grid.json")]
pub struct Results {
    /// What --json wrote; without any the index alone is made again
    #[arg(value_name = "FILE")]
    files: Vec<PathBuf>,
    /// The commit that was measured [that of the repository]
    #[arg(long, value_name = "NAME")]
    commit: Option<String>,
    /// Where results are kept
    #[arg(long, value_name = "DIR", default_value = FOLDER)]
    folder: PathBuf,
    /// Fail if the index is not what the files say, and write nothing
    #[arg(long, conflicts_with = "files")]
    check: bool,
}

impl Page {
    /// Measures if it must, and writes the page.
    pub fn run(&self) -> Result<()> {
        let mut script = script(self.python.as_deref());
        script.arg("report").arg("--output").arg(&self.output);
        if let Some(folder) = &self.pictures {
            script.arg("--pictures").arg(folder);
        }
        script.args(self.quick.then_some("--quick"));
        // What the benchmarks add to the load is not others'.
        script.env(machine::LOAD_VARIABLE, machine::load().to_string());
        script.arg("--bench").arg(std::env::current_exe()?).args(&self.from);
        // It hears of Ctrl-C itself, and ends with what was measured until then.
        Err(script.exec()).context("python3 is not here; apt-get install python3")
    }
}

impl Results {
    /// Keeps files and makes the index.
    pub fn run(&self) -> Result<()> {
        let mut script = script(None);
        script.arg("results").arg("--folder").arg(&self.folder).args(&self.files);
        if let Some(commit) = &self.commit {
            script.arg("--commit").arg(commit);
        }
        script.args(self.check.then_some("--check"));
        Err(script.exec()).context("python3 is not here; apt-get install python3")
    }
}

/// Keeps a report that was taken just now.
///
/// # Errors
/// It cannot be written, or its commit is unknown.
pub fn keep(folder: &Path, taken: &Taken) -> Result<()> {
    let mut script = script(None);
    script.arg("results").arg("--folder").arg(folder).arg("/dev/stdin").stdin(Stdio::piped());
    let mut child = script.spawn().context("python3 is not here; apt-get install python3")?;
    serde_json::to_writer(child.stdin.take().context("a pipe")?, taken)?;
    ensure!(child.wait()?.success(), "the figures were not kept");
    Ok(())
}

/// The script in a Python, one with matplotlib where there is one.
fn script(python: Option<&Path>) -> Command {
    let known = [Path::new("python3"), Path::new(".venv/bin/python3")];
    let draws = |python: &&Path| {
        let import = python.to_str().map(|it| machine::output(it, &["-c", "import matplotlib"]));
        import.flatten().is_some()
    };
    let python = python.or_else(|| known.into_iter().find(draws)).unwrap_or(known[0]);
    let mut command = Command::new(python);
    command.args(["-c", SCRIPT]).env("PREZERO_BENCH_QUIET", machine::QUIET.to_string());
    command
}
