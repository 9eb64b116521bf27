//! How a command ends: a status, and one line for what went wrong.

use std::process::ExitCode;

use clap::Command;
use clap::error::ErrorKind;

/// Exit status of a mistake in the command line, as most commands have it.
pub const USAGE: u8 = 2;

/// Exit status of a command whose reader has seen enough: that of one which `SIGPIPE` ends.
const UNREAD: u8 = 128 + 13;

/// The exit status of `command`; its error is told in one line, but for a reader that is gone.
pub fn told(command: &str, outcome: anyhow::Result<()>) -> ExitCode {
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) if is_unread(&error) => ExitCode::from(UNREAD),
        Err(error) => {
            prezero_sys::tell!("prezero: {command}: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn is_unread(error: &anyhow::Error) -> bool {
    let error = error.downcast_ref::<std::io::Error>();
    error.is_some_and(|error| error.kind() == std::io::ErrorKind::BrokenPipe)
}

/// Help and version go out as they are, a mistake in the line of `command` as one line. `status` says
/// how the command ends whose help would help: `prezero ctl set`.
pub fn refuse(error: &clap::Error, command: Command, status: impl Fn(&str) -> u8) -> ExitCode {
    match error.kind() {
        ErrorKind::DisplayHelp
        | ErrorKind::DisplayVersion
        | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => error.exit(),
        _ => {}
    }
    let place = asked(command, std::env::args().skip(1));
    let text = error.to_string();
    let paragraph = text.split("\n\n").next().unwrap_or_default();
    let words: Vec<_> = paragraph.split_whitespace().collect();
    // What a number's parser says of a word.
    let line = words.join(" ").replace("invalid digit found in string", "not a number from 0 up");
    let line = line.strip_prefix("error: ").unwrap_or(&line);
    prezero_sys::tell!("{}: {line}; see `{place} --help`", place.replace(' ', ": "));
    ExitCode::from(status(&place))
}

/// The command that was meant, as far as it can be told: the one whose help helps.
fn asked(mut command: Command, arguments: impl Iterator<Item = String>) -> String {
    let mut place = command.get_bin_name().unwrap_or(command.get_name()).to_string();
    for argument in arguments {
        let Some(below) = command.find_subcommand(&argument).cloned() else { break };
        place = format!("{place} {}", below.get_name());
        command = below;
    }
    place
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_mistake_leads_to_the_help_of_its_command() {
        let asked = |line: &str| super::asked(crate::command(), line.split(' ').map(String::from));
        for (line, place) in [
            ("tpo", "prezero"),
            ("top --onec", "prezero top"),
            ("ctl 4711 frobnicate", "prezero ctl"),
            ("run --colour -- ctl set", "prezero run"),
        ] {
            assert_eq!(asked(line), place, "{line}");
        }
    }
}
