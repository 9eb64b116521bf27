//! The command `prezero`: runs unmodified programs with memory that is already zero,
//! and measures what that gains and costs.
//!
//! `run` validates, puts the library in front of the program's allocator and becomes
//! the program; `claim` does the same with memory leased from
//! prezerod, of which `stock` tells; `place` makes ready files for programs that look for
//! them; `top` watches and `ctl` turns the knobs of what runs; `engines` lists how this CPU
//! can clear; `bench` measures against the
//! allocators that people use. An error is one line: what was asked, what is wrong, the mend.

mod bare;
mod bench;
mod claim;
mod ctl;
mod engines;
mod generate;
mod help;
mod library;
mod place;
mod program;
mod run;
mod stat;
mod stock;
mod top;

use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::{CommandFactory, Parser};

/// Memory that is already zero when somebody asks for it.
#[derive(Parser)]
#[command(
    name = "prezero",
    version,
    arg_required_else_help = true,
    after_help = "Example: prezero run -- python3 script.py"
)]
enum Command {
    /// Run a program, unmodified, with memory that is already zero.
    Run(run::Run),
    /// Run a program with zeroed, populated huge pages leased from prezerod.
    Claim(claim::Claim),
    /// Put ready huge pages where a program will look for its own.
    #[command(subcommand)]
    Place(place::Place),
    /// Show what prezerod has ready, and who holds what.
    Stock(stock::Stock),
    /// Watch who runs under prezero, and the broker, live.
    Top(top::Top),
    /// Turn the knobs of a process that runs under prezero, or show its figures.
    Ctl(ctl::Ctl),
    /// List the ways in which this CPU can clear memory, and how fast each is.
    #[command(after_help = "Example: prezero engines")]
    Engines,
    /// Measure against glibc, jemalloc, mimalloc and tcmalloc, side by side.
    #[command(subcommand)]
    Bench(bench::Bench),
    /// Write man pages and shell completions: for packages, and in none of these.
    #[command(skip)]
    Generate(generate::Generate),
}

/// What a program's start waits for, by itself: all of [`Command`] takes longer to build.
#[derive(Parser)]
#[command(name = "prezero", version)]
enum Alone {
    /// Run a program, unmodified, with memory that is already zero.
    Run(run::Run),
    /// Run a program with zeroed, populated huge pages leased from prezerod.
    Claim(claim::Claim),
}

/// What packages call.
#[derive(Parser)]
#[command(name = "prezero", version)]
enum Packaging {
    /// Write man pages and shell completions
    Generate(generate::Generate),
}

/// The command line.
fn parsed() -> Result<Command, clap::Error> {
    match std::env::args_os().nth(1) {
        Some(name) if name == "run" || name == "claim" => {
            Alone::try_parse().map(|alone| match alone {
                Alone::Run(run) => Command::Run(run),
                Alone::Claim(claim) => Command::Claim(claim),
            })
        }
        Some(name) if name == "generate" => {
            Packaging::try_parse().map(|Packaging::Generate(generate)| Command::Generate(generate))
        }
        _ => Command::try_parse(),
    }
}

/// Exit status of a mistake in the command line, as most commands have it.
const USAGE: u8 = 2;

fn main() -> ExitCode {
    let command = match parsed() {
        Ok(command) => command,
        Err(error) => return refuse(&error),
    };
    if matches!(command, Command::Stock(_) | Command::Top(_) | Command::Ctl(_) | Command::Engines) {
        // Whoever reads what these print may have seen enough: that ends them in silence.
        // SAFETY: sets what is done by default; they write to no other pipe.
        unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
    }
    match command {
        Command::Run(run) => {
            let failure = run.exec();
            eprintln!("prezero: run: {failure}");
            ExitCode::from(failure.status())
        }
        Command::Claim(claim) => match claim.run() {
            Ok(()) => ExitCode::SUCCESS,
            Err(failure) => {
                eprintln!("prezero: claim: {failure}");
                ExitCode::from(failure.status())
            }
        },
        Command::Place(place) => told("place", place.run()),
        Command::Stock(stock) => told("stock", stock.run()),
        Command::Top(top) => told("top", top.run()),
        Command::Ctl(ctl) => told("ctl", ctl.run()),
        Command::Engines => {
            engines::list();
            ExitCode::SUCCESS
        }
        Command::Bench(bench) => told("bench", bench.run()),
        Command::Generate(generate) => told("generate", generate.run(Command::command())),
    }
}

/// The exit status; an error is told in one line.
fn told(command: &str, outcome: anyhow::Result<()>) -> ExitCode {
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("prezero: {command}: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Help and version go out as they are, a mistake as one line.
fn refuse(error: &clap::Error) -> ExitCode {
    match error.kind() {
        ErrorKind::DisplayHelp
        | ErrorKind::DisplayVersion
        | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => error.exit(),
        _ => {}
    }
    let place = asked(std::env::args().skip(1));
    // The status of `run` is the program's; 125 is kept for run itself, as env(1) does.
    let status = match place.as_str() {
        "prezero run" | "prezero claim" => run::OWN_FAILURE,
        _ => USAGE,
    };
    let text = error.to_string();
    let paragraph = text.split("\n\n").next().unwrap_or_default();
    let words: Vec<_> = paragraph.split_whitespace().collect();
    // What a number's parser says of a word.
    let line = words.join(" ").replace("invalid digit found in string", "not a number from 0 up");
    let line = line.strip_prefix("error: ").unwrap_or(&line);
    eprintln!("{}: {line}; see `{place} --help`", place.replace(' ', ": "));
    ExitCode::from(status)
}

/// The command that was meant, as far as it can be told: the one whose help helps.
fn asked(arguments: impl Iterator<Item = String>) -> String {
    let (mut place, mut command) = ("prezero".to_string(), Command::command());
    for argument in arguments {
        let Some(below) = command.find_subcommand(&argument).cloned() else { break };
        place = format!("{place} {}", below.get_name());
        command = below;
    }
    place
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mistake_leads_to_the_help_of_its_command() {
        let asked = |line: &str| super::asked(line.split(' ').map(String::from));
        for (line, place) in [
            ("tpo", "prezero"),
            ("top --onec", "prezero top"),
            ("bench grid --sizes x", "prezero bench grid"),
            ("ctl 4711 frobnicate", "prezero ctl"),
            ("run --colour -- bench grid", "prezero run"),
        ] {
            assert_eq!(asked(line), place, "{line}");
        }
    }

    /// A terminal that somebody works in: columns, lines.
    const SCREEN: (usize, usize) = (80, 24);

    /// The names of a command, its parents' first, and of all below it.
    fn all(command: &clap::Command, above: &[String], found: &mut Vec<Vec<String>>) {
        let path = [above, &[command.get_name().to_string()]].concat();
        let shown = command.get_subcommands().filter(|each| !each.is_hide_set());
        shown.for_each(|each| all(each, &path, found));
        found.push(path);
    }

    #[test]
    fn the_help_of_every_command_fits_a_screen_and_has_an_example() {
        let (columns, lines) = SCREEN;
        let command = || Command::command().term_width(columns);
        let mut paths = vec![];
        all(&command(), &[], &mut paths);
        assert!(paths.len() > 20, "{paths:?}");
        for mut path in paths {
            path.push("--help".into());
            let help = command().try_get_matches_from(&path).unwrap_err().to_string();
            assert!(help.lines().count() <= lines, "{path:?}: it is too long:\n{help}");
            let widest = help.lines().map(|line| line.chars().count()).max().unwrap_or(0);
            assert!(widest <= columns, "{path:?}: it is too wide:\n{help}");
            assert!(help.contains("Example"), "{path:?}: no example:\n{help}");
        }
    }
}
