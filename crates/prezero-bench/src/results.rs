//! Results that are kept: `bench/results/MACHINE/DATE-COMMIT.json`, and one index of all of them.
//!
//! A file holds what was measured on one machine, of one commit, on one day: a report for each benchmark. The index is
//! made from the files and from nothing else, so that no figure stands in two places.

mod index;
mod keep;

pub use index::last;

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};

use crate::output::Taken;

/// Where results are, seen from the repository's root.
pub const FOLDER: &str = "bench/results";
/// The index in it.
const INDEX: &str = "README.md";

/// A file of results.
#[derive(Debug, Serialize, Deserialize)]
struct Kept {
    /// Year, month and day of the first report, UTC.
    date: String,
    /// What was measured.
    commit: String,
    /// One for each benchmark, by its name.
    reports: Vec<Taken>,
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

impl Results {
    /// Keeps files and makes the index.
    pub fn run(&self) -> Result<()> {
        for file in &self.files {
            keep::keep(&self.folder, Taken::read(file)?, self.commit.as_deref())?;
        }
        if self.check {
            return check(&self.folder);
        }
        write_index(&self.folder)
    }
}

/// Keeps a report that was taken just now.
///
/// # Errors
/// It cannot be written, or its commit is unknown.
pub fn keep(folder: &Path, taken: Taken) -> Result<()> {
    keep::keep(folder, taken, None)?;
    write_index(folder)
}

fn write_index(folder: &Path) -> Result<()> {
    let file = folder.join(INDEX);
    std::fs::write(&file, index::of(folder)?).with_context(|| file.display().to_string())
}

/// Whether the index is what the files say.
fn check(folder: &Path) -> Result<()> {
    let file = folder.join(INDEX);
    let written = std::fs::read_to_string(&file).with_context(|| file.display().to_string())?;
    ensure!(
        written == index::of(folder)?,
        "{}: not what the files say; prezero bench results makes it again",
        file.display()
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_index_of_this_repository_is_what_its_results_say() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        check(&root.join(FOLDER)).unwrap();
    }
}
