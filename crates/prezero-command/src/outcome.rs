//! How a command ends: a status, and one line for what went wrong.

use std::io::Write;
use std::process::ExitCode;

use clap::Command;
use clap::error::{ContextKind, ContextValue, ErrorKind};

/// Exit status of a mistake in the command line, as most commands have it.
pub const USAGE: u8 = 2;

/// Exit status of everything else.
const FAILURE: u8 = 1;

/// As clap has it: words that are more alike than that may have been meant.
const ALIKE: f64 = 0.7;
/// And that differ by no more letters, or a third of them.
const SLIPS: usize = 1;

/// Exit status of a command whose reader has seen enough: that of one which `SIGPIPE` ends.
const UNREAD: u8 = 128 + 13;

/// Exit status of a command that the user ended: that of one which `SIGINT` ends.
pub const ENDED: u8 = 128 + 2;

/// The user ended a command before its end.
#[derive(Debug, thiserror::Error)]
#[error("interrupted")]
pub struct Interrupted;

/// The exit status of `command`; its error is told in one line, but for a reader that is gone.
/// An error that begins with an option is that option's, and ends as every mistake in the command line.
pub fn told(command: &str, outcome: anyhow::Result<()>) -> ExitCode {
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) if is_unread(&error) => ExitCode::from(UNREAD),
        Err(error) => {
            let line = format!("{error:#}");
            prezero_sys::tell!("prezero: {command}: {line}");
            let ended = error.is::<Interrupted>().then_some(ENDED);
            ExitCode::from(ended.unwrap_or_else(|| status(&line)))
        }
    }
}

/// Of a command that ended with this line.
fn status(line: &str) -> u8 {
    if line.starts_with("--") { USAGE } else { FAILURE }
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
        | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => return helped(error),
        _ => {}
    }
    let place = asked(command.clone(), std::env::args().skip(1));
    let text = error.to_string();
    let paragraph = text.split("\n\n").next().unwrap_or_default();
    let words: Vec<_> = paragraph.split_whitespace().collect();
    // What a number's parser says of a word.
    let line = words.join(" ").replace("invalid digit found in string", "not a number from 0 up");
    let line = line.strip_prefix("error: ").unwrap_or(&line);
    let meant =
        meant(error, &command).map_or(String::new(), |meant| format!("; did you mean {meant}?"));
    prezero_sys::tell!("{}: {line}{meant}; see `{place} --help`", place.replace(' ', ": "));
    ExitCode::from(status(&place))
}

/// Prints help or the version. One that cannot be written is no success.
fn helped(error: &clap::Error) -> ExitCode {
    let outcome = error.print().and_then(|()| std::io::stdout().flush());
    match outcome {
        Ok(()) => ExitCode::from(error.exit_code() as u8),
        error => told("help", error.map_err(Into::into)),
    }
}

/// What clap takes for what was meant: `tip: a similar argument exists: '--scrub-rate'`.
/// Of commands, which are short, a letter out of place is enough, and clap alone would take too much for alike.
pub fn meant(error: &clap::Error, command: &Command) -> Option<String> {
    if let Some(ContextValue::String(word)) = error.get(ContextKind::InvalidSubcommand) {
        let theirs = match error.get(ContextKind::SuggestedSubcommand) {
            Some(ContextValue::Strings(all)) => all.as_slice(),
            _ => &[],
        };
        let names = command.get_subcommands().map(Command::get_name);
        let names = names.chain(theirs.iter().map(String::as_str));
        return similar(word, names).map(|name| format!("'{name}'"));
    }
    let text = error.to_string();
    let mut tips = text.lines().filter_map(|line| line.trim().strip_prefix("tip: "));
    let similar = tips.find(|tip| tip.contains(" similar ")).and_then(|tip| tip.split_once(": "));
    similar.map(|(_, words)| words.replace(", ", " or "))
}

/// The word among `words` that is most like a word that is not among them, if one is like it.
pub fn similar<'a>(word: &str, words: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let slip = |other: &str| strsim::damerau_levenshtein(word, other) == 1;
    let likeness = |other: &str| if slip(other) { 1.0 } else { strsim::jaro(word, other) };
    let most = words.max_by(|a, b| likeness(a).total_cmp(&likeness(b)))?;
    // Jaro finds short words alike that share a few letters.
    let slips = strsim::damerau_levenshtein(word, most);
    (likeness(most) > ALIKE && slips <= SLIPS.max(word.len() / 3)).then_some(most)
}

/// The command that was meant, as far as it can be told: the one whose help helps.
pub fn asked(mut command: Command, arguments: impl Iterator<Item = String>) -> String {
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
    fn a_value_that_turns_out_wrong_is_a_mistake_in_the_command_line() {
        assert_eq!(super::status("--figure (: found open group without closing ')'"), 2);
        assert_eq!(super::status("4711: no such process"), 1);
    }
}
