//! How a command ends: a status, and one line for what went wrong.

use std::process::ExitCode;

use clap::Command;
use clap::error::ErrorKind;

/// Exit status of a mistake in the command line, as most commands have it.
pub const USAGE: u8 = 2;

/// Says one line on standard error. Where that leads nowhere, the command goes on all the same.
pub fn say(line: &str) {
    let _ = rustix::io::write(rustix::stdio::stderr(), format!("{line}\n").as_bytes());
}

/// The exit status of `command`; its error is told in one line.
pub fn told(command: &str, outcome: anyhow::Result<()>) -> ExitCode {
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("prezero: {command}: {error:#}");
            ExitCode::FAILURE
        }
    }
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
    eprintln!("{}: {line}; see `{place} --help`", place.replace(' ', ": "));
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
