//! `prezero run`: becomes the program, with the library in front of its allocator.
//!
//! It execs, so pid, signals, terminal and exit status are the program's own. Its
//! knobs are the rows of [`KNOBS`], each an option and an environment variable; the
//! library reads them from the environment, as this leaves them.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use clap::parser::ValueSource;
use clap::{Arg, ArgMatches, Args, FromArgMatches};
use prezero::internal::{KNOBS, Knob};
use prezero::{Config, ConfigError, Machine, Origin};
use prezero_sys::{birth, stderr};
use rustix::fs::{Access, AtFlags, CWD, accessat};

use crate::given;
use crate::{tree, variables};
use prezero_command::help::OneScreen;
use prezero_command::library::{self, LibraryError};
use prezero_command::program::{self, Fit, Missing};

/// Exit status of a failure of `prezero run` itself, as env(1) has it.
pub const OWN_FAILURE: u8 = 125;
const NOT_EXECUTABLE: u8 = 126;
const NOT_FOUND: u8 = 127;

/// Tells the library which process `prezero run` became: only that one speaks at its end.
const PID_VARIABLE: &str = "PREZERO_PID";
/// Which file standard error was at the start: `prezero_sys::stderr` has it by this name.
pub const STDERR_VARIABLE: &str = "PREZERO_STDERR";

/// Where the statistics go: a knob's.
const STATS_VARIABLE: &str = "PREZERO_STATS";

/// Tells the library where the children of that process tell it what they did.
const TREE_VARIABLE: &str = "PREZERO_TREE";

/// Tells the library how many filters of system calls were tried ([`program::fit`]).
const TRIED_VARIABLE: &str = "PREZERO_TRIED";

/// The command line of `prezero run`.
#[derive(Args)]
#[command(
    after_help = "Example: prezero run --scrub-rate 2G -- python3 script.py\n\
    Each is a variable too: PREZERO_SCRUB_RATE. Exit: the program's, or 125 to 127.",
    after_long_help = "Each option is a variable too: --scrub-rate is PREZERO_SCRUB_RATE. \
    PREZERO_LIB names the library when it is not beside the command.\n\n\
    Exit status: the program's own; 125 prezero failed, 126 PROGRAM cannot run, 127 no such \
    PROGRAM.\n\nExample: prezero run --scrub-rate 2G -- python3 script.py"
)]
pub struct Run {
    #[command(flatten)]
    _help: OneScreen,
    #[command(flatten)]
    knobs: GivenKnobs,
    /// The program and its arguments.
    #[arg(
        required = true,
        trailing_var_arg = true,
        value_names = ["PROGRAM", "ARGS"],
        hide_short_help = true
    )]
    command: Vec<OsString>,
}

/// What a newcomer asks first, in the help's order; the others come behind, as their table has them.
const FIRST: [&str; 6] = ["stats", "limit", "decay", "threshold", "huge", "verify"];

/// The knobs that were given, as options or as variables; what is not given is not here.
struct GivenKnobs(Vec<(&'static Knob, Origin, String)>);

impl Args for GivenKnobs {
    fn augment_args(command: clap::Command) -> clap::Command {
        command.args(KNOBS.iter().map(|knob| {
            Arg::new(knob.name)
                .long(knob.name)
                .env(knob.variable)
                .hide_env(true)
                .value_name(knob.value)
                .display_order(FIRST.iter().position(|it| *it == knob.name).unwrap_or(FIRST.len()))
                .allow_negative_numbers(true)
                .help(knob.help)
                .long_help(knob.detail)
        }))
    }

    fn augment_args_for_update(command: clap::Command) -> clap::Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for GivenKnobs {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let given = KNOBS.iter().filter_map(|knob| {
            let value = matches.get_one::<String>(knob.name)?;
            let origin = match matches.value_source(knob.name) {
                Some(ValueSource::EnvVariable) => Origin::Variable,
                _ => Origin::Option,
            };
            (!value.is_empty()).then(|| (knob, origin, value.clone()))
        });
        Ok(GivenKnobs(given.collect()))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

/// Why the program does not run.
#[derive(Debug)]
pub enum Failure {
    /// A knob's value is no good.
    Knob(ConfigError),
    /// The statistics have nowhere to go.
    StatsFolder(PathBuf),
    /// They cannot be written there.
    StatsFile(PathBuf, io::Error),
    /// A variable that is no knob has a value that it does not take.
    Variable(variables::BadValue),
    /// Its variable names no library.
    Library(LibraryError),
    /// There is no such program, or it is not one.
    Program(Missing),
    /// The kernel refused.
    Exec(PathBuf, io::Error),
}

impl Failure {
    /// The exit status, as env(1) and nohup(1) have it.
    pub fn status(&self) -> u8 {
        match self {
            Failure::Program(Missing::NotFound(_)) => NOT_FOUND,
            Failure::Exec(_, error) if error.kind() == io::ErrorKind::NotFound => NOT_FOUND,
            Failure::Program(_) | Failure::Exec(..) => NOT_EXECUTABLE,
            Failure::Knob(_)
            | Failure::StatsFolder(_)
            | Failure::StatsFile(..)
            | Failure::Variable(_)
            | Failure::Library(_) => OWN_FAILURE,
        }
    }
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Failure::Knob(error) => error.fmt(f),
            Failure::StatsFolder(file) => {
                write!(f, "--stats {}: no such directory; make it first", file.display())
            }
            Failure::StatsFile(file, error) => {
                write!(f, "--stats {}: {error}; name a file that can be written", file.display())
            }
            Failure::Variable(error) => error.fmt(f),
            Failure::Library(error) => error.fmt(f),
            Failure::Program(missing) => missing.fmt(f),
            Failure::Exec(program, error) => {
                write!(f, "{}: {error}; does it run without prezero?", program.display())
            }
        }
    }
}

impl Run {
    /// Becomes the program. Comes back only when that fails.
    pub fn exec(&self) -> Failure {
        let Err(failure) = self.try_exec();
        failure
    }

    fn try_exec(&self) -> Result<std::convert::Infallible, Failure> {
        variables::look().map_err(Failure::Variable)?;
        let environment = self.environment()?;
        let name = &self.command[0];
        let path = program::find(name, std::env::var_os("PATH")).map_err(Failure::Program)?;
        let mut command = Command::new(&path);
        command.arg0(name).args(&self.command[1..]);

        match way(&path)? {
            Way::Preloaded(preload) => {
                command.env("LD_PRELOAD", preload);
                // The number alone may be another process's, too: the first of a container.
                let number = std::process::id().to_string();
                let this = birth::identity().map(|this| format!("{number}:{this}"));
                command.env(PID_VARIABLE, this.unwrap_or(number));
                command.env(STDERR_VARIABLE, stderr::noted());
                command.env_remove(TREE_VARIABLE);
                let is_told = |(name, value): &(&str, String)| {
                    *name == STATS_VARIABLE && (value == "off" || value.contains("%p"))
                };
                if !environment.iter().any(is_told) {
                    command.envs(tree::place().map(|file| (TREE_VARIABLE, file)));
                }
                match program::tried_filters() {
                    Some(filters) => command.env(TRIED_VARIABLE, filters.to_string()),
                    None => command.env_remove(TRIED_VARIABLE),
                };
                command.envs(environment);
            }
            Way::Plain(why) => prezero_sys::tell!(
                "prezero: run: {}{why}: prezero cannot help it, it runs as it is",
                Path::new(name).display()
            ),
        }
        let error = given::hand_on(&mut command).exec();
        match program::without_interpreter(&path) {
            Some(missing) if error.kind() == io::ErrorKind::NotFound => {
                Err(Failure::Program(missing))
            }
            _ => Err(Failure::Exec(path, error)),
        }
    }

    /// The variables that carry the given knobs to the library, checked.
    fn environment(&self) -> Result<Vec<(&'static str, String)>, Failure> {
        let mut given: Vec<_> = self.knobs.0.iter().collect();
        let config = self.config(&given).map_err(Failure::Knob)?;
        given.dedup_by_key(|(knob, ..)| knob.name);
        given
            .into_iter()
            .map(|(knob, _, _)| {
                let value = config.show(knob).to_string();
                let value = if knob.name == "stats" { settled(&value)? } else { value };
                Ok((knob.variable, value))
            })
            .collect()
    }

    fn config(&self, given: &[&(&'static Knob, Origin, String)]) -> Result<Config, ConfigError> {
        Config::read(&Machine::here(), |knob| {
            let found = given.iter().find(|(each, ..)| each.name == knob.name);
            found.map(|(_, origin, value)| (*origin, value.as_str()))
        })
    }
}

/// How the program is to be started.
enum Way {
    /// With this `LD_PRELOAD`.
    Preloaded(OsString),
    /// As it is, and why: the end of a sentence that begins with the program.
    Plain(String),
}

fn way(path: &Path) -> Result<Way, Failure> {
    if let Fit::CannotPreload(why) = program::fit(path) {
        return Ok(Way::Plain(format!(" {why}")));
    }
    let preload = library::find(library::ALLOCATOR)
        .and_then(|library| library::in_front_of(&library, std::env::var_os("LD_PRELOAD")));
    match preload {
        Ok(preload) => Ok(Way::Preloaded(preload)),
        // What a variable names wrongly is a mistake; where the command lies is the machine's state.
        Err(error @ (LibraryError::Absent(_) | LibraryError::Unnameable(_))) => {
            Ok(Way::Plain(format!(": {error}")))
        }
        Err(error) => Err(Failure::Library(error)),
    }
}

/// The place for the statistics, such that the program may change its directory.
fn settled(stats: &str) -> Result<String, Failure> {
    if ["-", "off", "summary"].contains(&stats) {
        return Ok(stats.to_string());
    }
    let lost = |_| Failure::StatsFolder(stats.into());
    let file = std::path::absolute(stats).map_err(lost)?;
    let refused = |error| Failure::StatsFile(stats.into(), error);
    if let Ok(present) = file.metadata() {
        if present.is_dir() {
            return Err(refused(io::ErrorKind::IsADirectory.into()));
        }
        if present.is_file() {
            // Nothing is written, but a file of the kernel that takes nothing says so.
            let mut opened = File::options().write(true).open(&file).map_err(refused)?;
            opened.write(&[]).map_err(refused)?;
        }
    }
    match file.parent().filter(|folder| Path::is_dir(folder)) {
        Some(folder) => {
            let rights = Access::WRITE_OK | Access::EXEC_OK;
            if !file.exists() {
                accessat(CWD, folder, rights, AtFlags::EACCESS)
                    .map_err(|error| refused(error.into()))?;
            }
            Ok(file.to_string_lossy().into_owned())
        }
        None => Err(Failure::StatsFolder(file)),
    }
}
