//! The command `prezero`: runs unmodified programs with memory that is already zero,
//! and measures what that gains and costs.
//!
//! `run` validates, puts the library in front of the program's allocator and becomes
//! the program; `try` measures a program without and with it; `claim` does the same as `run` with memory leased from
//! prezerod, of which `stock` tells; `place` makes ready files for programs that look for
//! them; `wipe` has the kernel clear a guest's free memory; `jupyter` writes a kernel for notebooks; `top` watches and
//! `ctl` turns the knobs of what runs; `doctor` looks at the machine; `engines` lists how this CPU can clear; `bench`
//! becomes `prezero-bench`, a program of its own. An error is one line: what was
//! asked, what is wrong, the mend.
//!
//! This is a library for the sake of `prezero-qemu`, which shares modules of it.
//!
//! Layers: bare, letters, given, stat, engines, variables, tree, run, qemu, claim, emulator, place, wipe, jupyter, stock, log, ctl, top, trial, doctor, bench, words, generate

pub mod bare;
mod bench;
mod claim;
mod ctl;
mod doctor;
pub mod emulator;
mod engines;
#[cfg(feature = "packaging")]
pub mod generate;
pub mod given;
mod jupyter;
mod letters;
mod log;
mod place;
mod qemu;
mod run;
mod stat;
mod stock;
#[cfg(feature = "top")]
mod top;
mod tree;
mod trial;
mod variables;
mod wipe;
mod words;

use std::process::ExitCode;

use clap::{CommandFactory, Parser};
use prezero_command::outcome::{self, refuse, told};

/// Memory that is already zero when a program asks for it.
#[derive(Parser)]
#[command(
    name = "prezero",
    version,
    arg_required_else_help = true,
    // A line shorter than clap's own: the screen has 24.
    help_template = "{about}\n\n{usage-heading} {usage}\n{all-args}{after-help}",
    after_help = "Example: prezero run -- python3 script.py"
)]
enum Command {
    /// Run a program, unmodified, with memory that is already zero.
    Run(run::Run),
    /// Measure a program without and with prezero, and say whether to use it.
    Try(trial::Try),
    /// Run a program with zeroed, populated huge pages leased from prezerod.
    Claim(claim::Claim),
    /// Put ready huge pages where a program will look for its own.
    #[command(subcommand)]
    Place(place::Place),
    /// Let notebooks run under prezero.
    #[command(subcommand)]
    Jupyter(jupyter::Jupyter),
    /// Show what prezerod has ready, and which process holds what.
    Stock(stock::Stock),
    /// Show which claims prezerod served, delayed or refused, and why.
    Log(log::Log),
    /// Have the kernel clear a guest's free memory: its snapshot compresses.
    Wipe(wipe::Wipe),
    /// Watch the processes under prezero, and the broker, live.
    #[cfg(feature = "top")]
    Top(top::Top),
    /// Turn the knobs of a process under prezero, or show its figures.
    Ctl(ctl::Ctl),
    /// Say whether prezero gains on this machine, and what would help.
    Doctor(doctor::Doctor),
    /// List how this CPU can clear memory, and how fast.
    #[command(after_help = "Example: prezero engines")]
    Engines,
    /// Measure against glibc, jemalloc, mimalloc and tcmalloc, side by side.
    Bench(bench::Bench),
    /// Write man pages and shell completions: for packages, which leave it out.
    #[cfg(feature = "packaging")]
    #[command(skip)]
    Generate(generate::Generate),
    /// What shells complete: for completions, which leave it out.
    #[command(skip)]
    Words(words::Words),
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

/// What packages and shells call.
#[derive(Parser)]
#[command(name = "prezero", version)]
enum Packaging {
    /// Write man pages and shell completions
    #[cfg(feature = "packaging")]
    Generate(generate::Generate),
    /// Print words for a shell's completions, one a line
    Words(words::Words),
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
        // All that stands behind it is another program's to read.
        Some(name) if name == "bench" => {
            Ok(Command::Bench(bench::Bench::with(std::env::args_os().skip(2))))
        }
        Some(name) if name == "generate" || name == "words" => {
            Packaging::try_parse().map(|packaging| match packaging {
                #[cfg(feature = "packaging")]
                Packaging::Generate(generate) => Command::Generate(generate),
                Packaging::Words(words) => Command::Words(words),
            })
        }
        _ => Command::try_parse(),
    }
}

/// The whole command line, for man pages, completions and help.
pub fn command() -> clap::Command {
    Command::command()
}

/// The status of `run` is the program's; 125 is kept for run itself, as env(1) does.
fn mistake(place: &str) -> u8 {
    match place {
        "prezero run" | "prezero claim" => run::OWN_FAILURE,
        _ => outcome::USAGE,
    }
}

/// Does what the command line asks for.
pub fn main() -> ExitCode {
    let command = match parsed() {
        Ok(command) => command,
        Err(error) => return refuse(&error, Command::command(), mistake),
    };
    match command {
        Command::Run(run) => {
            let failure = run.exec();
            prezero_sys::tell!("prezero: run: {failure}");
            ExitCode::from(failure.status())
        }
        Command::Try(trial) => told("try", trial.run()),
        Command::Claim(claim) => match claim.run() {
            Ok(()) => ExitCode::SUCCESS,
            Err(failure) => {
                prezero_sys::tell!("prezero: claim: {failure}");
                ExitCode::from(failure.status())
            }
        },
        Command::Place(place) => told("place", place.run()),
        Command::Jupyter(jupyter) => told("jupyter", jupyter.run()),
        Command::Stock(stock) => told("stock", stock.run()),
        Command::Log(log) => told("log", log.run()),
        Command::Wipe(wipe) => told("wipe", wipe.run()),
        #[cfg(feature = "top")]
        Command::Top(top) => told("top", top.run()),
        Command::Ctl(ctl) => told("ctl", ctl.run()),
        Command::Doctor(doctor) => told("doctor", doctor.run()),
        Command::Engines => told("engines", engines::list().map_err(Into::into)),
        Command::Words(words) => told("words", words.run()),
        Command::Bench(bench) => told("bench", bench.exec()),
        #[cfg(feature = "packaging")]
        Command::Generate(generate) => {
            told("generate", generate.run(&Command::command(), &Command::command()))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_may_have_been_meant_is_asked() {
        let told = |line: &str| {
            let error = command().try_get_matches_from(line.split(' ')).unwrap_err();
            outcome::meant(&error, &command())
        };
        assert_eq!(told("prezero tpo").as_deref(), Some("'top'"));
        assert_eq!(told("prezero run --scrub-rat 2G -- x").as_deref(), Some("'--scrub-rate'"));
        assert_eq!(told("prezero run --colour -- x"), None);
        assert_eq!((told("prezero nosuch"), told("prezero help nosuch")), (None, None));
        assert_eq!(told("prezero place spdk 2M").as_deref(), Some("'dpdk'"));
        let knobs = || prezero::internal::KNOBS.iter().map(|knob| knob.name);
        assert_eq!(outcome::similar("scrub-rte", knobs()), Some("scrub-rate"));
        assert_eq!(outcome::similar("colour", knobs()), None);
        let command = command();
        let names = || command.get_subcommands().map(clap::Command::get_name);
        assert_eq!(outcome::similar("nosuch", names()), None);
        assert_eq!(outcome::similar("docter", names()), Some("doctor"));
    }

    #[test]
    fn a_mistake_leads_to_the_help_of_its_command() {
        let asked = |line: &str| outcome::asked(command(), line.split(' ').map(String::from));
        for (line, place) in [
            ("tpo", "prezero"),
            ("top --onec", "prezero top"),
            ("ctl 4711 frobnicate", "prezero ctl"),
            ("run --colour -- ctl set", "prezero run"),
        ] {
            assert_eq!(asked(line), place, "{line}");
        }
    }

    #[test]
    fn the_help_of_every_command_fits_a_screen_and_has_an_example() {
        assert_eq!(prezero_command::help::flaws(&command()), Vec::<String>::new());
    }
}
