//! `--help` that fits a screen where the manual says more.

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
