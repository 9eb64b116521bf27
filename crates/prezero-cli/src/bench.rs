//! `prezero bench`: becomes `prezero-bench`, as git becomes git-foo.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::process::Command;

use anyhow::{Context, Result};

use crate::given;
use prezero_command::companion;

/// The command line of `prezero bench`. The benchmarks' own is `prezero-bench`'s.
#[derive(clap::Args)]
#[command(after_help = "Example: prezero bench report --quick\n\
    This is prezero-bench, a program of its own: cargo build --release -p prezero-bench")]
pub struct Bench {
    /// The benchmark and its options
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<OsString>,
}

impl Bench {
    /// With everything that stands behind `bench`, whatever it is.
    pub fn with(arguments: impl Iterator<Item = OsString>) -> Bench {
        Bench { arguments: arguments.collect() }
    }

    /// Becomes the benchmarks. Comes back only when that fails.
    pub fn exec(&self) -> Result<()> {
        let program = companion::find(companion::BENCH)?;
        let error = given::hand_on(Command::new(&program).args(&self.arguments)).exec();
        Err(error).with_context(|| program.display().to_string())
    }
}
