//! `--help` that fits a screen, also where the manual says more.

use clap::{Arg, ArgAction, ArgMatches, Args, Command, Error, FromArgMatches};

/// Of a command whose options each have a line for the screen and a text for its man page:
/// `--help` prints the lines, as `-h` does.
pub struct OneScreen;

impl Args for OneScreen {
    fn augment_args(command: Command) -> Command {
        let help = Arg::new("help").short('h').long("help").help("Print help");
        command.disable_help_flag(true).arg(help.action(ArgAction::HelpShort))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for OneScreen {
    fn from_arg_matches(_: &ArgMatches) -> Result<Self, Error> {
        Ok(OneScreen)
    }

    fn update_from_arg_matches(&mut self, _: &ArgMatches) -> Result<(), Error> {
        Ok(())
    }
}

/// A terminal in use: columns, lines.
const SCREEN: (usize, usize) = (80, 24);

/// What tests refuse in the help of `command` and of all below it: it does not fit a screen, or it
/// has no example.
pub fn flaws(command: &Command) -> Vec<String> {
    let (columns, lines) = SCREEN;
    let mut paths = vec![];
    all(command, &[], &mut paths);
    let mut flaws = vec![];
    for mut path in paths {
        path.push("--help".into());
        let sized = command.clone().term_width(columns);
        let help = match sized.try_get_matches_from(&path) {
            Ok(_) => String::new(),
            Err(help) => help.to_string(),
        };
        let widest = help.lines().map(|line| line.chars().count()).max().unwrap_or(0);
        if help.lines().count() > lines || widest > columns {
            flaws.push(format!("{path:?}: it is too large:\n{help}"));
        }
        if !help.contains("Example") {
            flaws.push(format!("{path:?}: no example:\n{help}"));
        }
    }
    flaws
}

/// The names of a command, its parents' first, and of all below it.
fn all(command: &Command, above: &[String], found: &mut Vec<Vec<String>>) {
    let path = [above, &[command.get_name().to_string()]].concat();
    let shown = command.get_subcommands().filter(|each| !each.is_hide_set());
    shown.for_each(|each| all(each, &path, found));
    found.push(path);
}
