//! `prezero bench report`: one page of HTML to show to a colleague.
//!
//! From files that were written with `--json`, or of what it measures itself, each benchmark as a program of
//! its own.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

use crate::machine;
use crate::output::Taken;
use crate::page::{self, Document};
use crate::progress;
use crate::results;
use crate::scratch::Scratch;

/// What is measured without `--from`: the arguments, and those that make it short.
const RUNS: [(&str, &[&str], &[&str]); 4] = [
    (
        "grid",
        &["--idle", "all"],
        &["--sizes", "64K,1M,16M", "--lines", "1,16,64", "--passes-s", "5"],
    ),
    ("seeds", &[], &["--mib", "64", "--runs", "1"]),
    ("waste", &[], &["--times", "0.3"]),
    ("disturb", &[], &["--rounds", "5", "--seconds", "0.1", "--pairs-s", "2"]),
];

/// The command line of `prezero bench report`.
#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  prezero bench report --quick\n  prezero bench report --from bench/results\n  \
    prezero bench grid --json grid.json && prezero bench report --from grid.json --pictures ."
)]
pub struct Report {
    /// Files of --json, or a folder of kept results [run grid, seeds, waste and disturb]
    #[arg(long, value_delimiter = ',', num_args = 1.., value_name = "FILE")]
    from: Vec<PathBuf>,
    /// Where the page goes
    #[arg(long, short, value_name = "FILE", default_value = "prezero-report.html")]
    output: PathBuf,
    /// Write each picture into files of its own as well, wide and narrow, in this folder
    #[arg(long, value_name = "DIR")]
    pictures: Option<PathBuf>,
    /// Run less of everything: some ten minutes instead of an hour
    #[arg(long, conflicts_with = "from")]
    quick: bool,
}

/// What a file of `--json` holds, or what was kept last of each benchmark on each machine, with its date and commit.
fn read(file: &Path) -> Result<Vec<(String, Taken)>> {
    if file.is_dir() {
        let all = results::last(file)?;
        ensure!(!all.is_empty(), "--from {}: no results are kept there", file.display());
        let each = all.into_iter().flat_map(|machine| machine.reports);
        return Ok(each
            .map(|kept| (format!("{}, {}", kept.date, kept.commit), kept.taken))
            .collect());
    }
    Ok(vec![(String::new(), Taken::read(file)?)])
}

impl Report {
    /// Measures if it must, and writes the page.
    pub fn run(&self) -> Result<()> {
        let scratch = Scratch::new()?;
        let measured;
        let files = if self.from.is_empty() {
            measured = self.measure(&scratch)?;
            &measured
        } else {
            &self.from
        };
        let mut taken = vec![];
        for file in files {
            taken.extend(read(file)?);
        }
        let documents = Document::all(taken);
        ensure!(!documents.is_empty(), "nothing was measured, or kept there");
        std::fs::write(&self.output, page::page(&documents)?).with_context(|| {
            format!("--output {}: give a file that can be written", self.output.display())
        })?;
        prezero_sys::print!("{}\n", self.output.display())?;
        let Some(folder) = &self.pictures else { return Ok(()) };
        let named = |path: &Path| format!("--pictures {}", path.display());
        std::fs::create_dir_all(folder).with_context(|| named(folder))?;
        for (name, svg) in page::pictures(&documents) {
            let file = folder.join(name);
            std::fs::write(&file, svg).with_context(|| named(&file))?;
            prezero_sys::print!("{}\n", file.display())?;
        }
        Ok(())
    }

    /// Runs the benchmarks, each as a user at a terminal would. Ctrl-C is passed on to the one that
    /// runs, which writes what it has; the others are left out.
    fn measure(&self, scratch: &Scratch) -> Result<Vec<PathBuf>> {
        progress::listen();
        let own = std::env::current_exe().context("finding our own program")?;
        let load = machine::load().to_string();
        let mut files = vec![];
        for (nth, (name, arguments, short)) in RUNS.into_iter().enumerate() {
            if progress::interrupted() {
                break;
            }
            progress::heading(&format!("{name}, {} of {}", nth + 1, RUNS.len()));
            let file = scratch.file(format!("{name}.json"));
            let short = if self.quick { short } else { &[] };
            let mut command = Command::new(&own);
            command.arg(name).args(arguments).args(short).env(machine::LOAD_VARIABLE, &load);
            let status = progress::run(command.arg("--json").arg(&file).stdout(Stdio::null()))?;
            if progress::interrupted() && !file.exists() {
                break; // before it had anything to write
            }
            ensure!(status.success() || progress::interrupted(), "bench {name}: {status}");
            files.push(file);
        }
        Ok(files)
    }
}
