//! The three ways to run a program.

use std::ffi::OsString;
use std::io;
use std::process::Command;

use crate::given;

/// A way to run a program.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Way {
    /// As it is.
    Plain,
    /// Under `prezero run`.
    Prezero,
    /// The same, with `--scrub-start never`.
    Unscrubbed,
}

/// All three, in the order of the table.
pub const WAYS: [Way; 3] = [Way::Plain, Way::Prezero, Way::Unscrubbed];

impl Way {
    /// For people.
    pub fn name(self) -> &'static str {
        match self {
            Way::Plain => "plain",
            Way::Prezero => "prezero",
            Way::Unscrubbed => "without scrubbing",
        }
    }

    /// In JSON.
    pub fn key(self) -> &'static str {
        match self {
            Way::Plain => "plain",
            Way::Prezero => "prezero",
            Way::Unscrubbed => "unscrubbed",
        }
    }

    /// The command. `stats`: where the counters go, or `off`.
    ///
    /// # Errors
    /// The command itself cannot be found.
    pub fn command(self, program: &[OsString], stats: &str) -> io::Result<Command> {
        if self == Way::Plain {
            let mut command = Command::new(&program[0]);
            given::hand_on(command.args(&program[1..]));
            return Ok(command);
        }
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["run", "--stats", stats]);
        if self == Way::Unscrubbed {
            command.args(["--scrub-start", "never"]);
        }
        given::hand_on(command.arg("--").args(program));
        Ok(command)
    }
}
