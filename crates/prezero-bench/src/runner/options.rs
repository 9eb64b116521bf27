//! The command line of a case of the file: what all have, and what it has a use for.

use anyhow::{Context, Result};
use clap::builder::ValueParser;
use clap::{Arg, ArgAction, ArgMatches, Command};

use crate::parse::{up_to, whole_pages};
use crate::table::{Benchmark, CASES, Sheet};
use crate::worker::LINES;

/// What `bench/pair.c` can start, and what its ring can hold.
/// Fixed: bounds of the program.
const MOST_THREADS: usize = 256;
const MOST_RING: usize = 1024;

/// What was asked for.
#[derive(Debug, Default)]
pub struct Options {
    pub runs: Option<usize>,
    /// The prezero of other builds, and mechanisms that another prezero is without.
    pub also: Vec<String>,
    pub ablate: Vec<String>,
    pub reserve: bool,
    values: Vec<(String, Vec<String>)>,
}

/// A command's words live as long as the program.
fn kept(text: String) -> &'static str {
    text.leak()
}

/// The command of a case.
pub fn command(name: &'static str, case: &'static Benchmark) -> Command {
    let runs = case.runs.unwrap_or(super::RUNS);
    let example = format!("Example: prezero bench {name} {}\n{}", case.example, case.more);
    let number =
        |name, value, help: String| Arg::new(name).long(name).value_name(value).help(kept(help));
    let mut command = Command::new(name).about(&*case.about).after_help(kept(example)).arg(
        number("runs", "N", format!("Runs of each row under each arm [{runs}]"))
            .value_parser(clap::value_parser!(usize)),
    );
    let arms = case.sheet.iter().flat_map(|sheet| &sheet.program.arms).map(|arm| CASES.arm(arm));
    let arms: Vec<_> = arms.collect();
    if arms.iter().any(|arm| ["prezero", "peers"].contains(&arm.of.as_str())) {
        let help = "prezero without a mechanism, too";
        for (name, value, help) in
            [("also", "PATH", "The prezero of another build, too"), ("ablate", "NAME", help)]
        {
            command = command.arg(number(name, value, help.into()).action(ArgAction::Append));
        }
    }
    if arms.iter().any(|arm| arm.backing.is_some()) {
        let help = "Reserve the hugetlb pages for this (as root)";
        command =
            command.arg(Arg::new("reserve").long("reserve").help(help).action(ArgAction::SetTrue));
    }
    for (option, default) in &case.options {
        let Some([value, help]) = CASES.options.get(option) else { continue };
        let help = if default.is_empty() { help.clone() } else { format!("{help} [{default}]") };
        let argument = number(option, value, help).value_parser(parser(option));
        let many = if value.ends_with(",...") { argument.value_delimiter(',') } else { argument };
        command = command.arg(if option == "add" { many.action(ArgAction::Append) } else { many });
    }
    command
}

/// What an option refuses.
fn parser(option: &str) -> ValueParser {
    fn checked<T>(read: fn(&str) -> Result<T, String>) -> ValueParser
    where
        T: 'static,
    {
        ValueParser::new(move |text: &str| read(text).map(|_| text.to_string()))
    }
    match option {
        "sizes" => checked(whole_pages),
        "lines" => checked(up_to::<LINES>),
        "threads" => checked(up_to::<MOST_THREADS>),
        "ring" => checked(up_to::<MOST_RING>),
        "warm" | "pause-ms" => checked(|text| {
            text.parse()
                .ok()
                .filter(|time| (0.0..=10_000.0).contains(time))
                .ok_or("give 0 or more".into())
        }),
        "seconds" | "times" | "pairs-s" | "text-mib" | "mib" => checked(|text| {
            text.parse().ok().filter(|number: &f64| *number > 0.0).ok_or("give more than 0".into())
        }),
        _ => ValueParser::string(),
    }
}

impl Options {
    /// Of a command line.
    ///
    /// # Errors
    /// Another build is not where it is said to be.
    pub fn of(case: &Benchmark, matches: &ArgMatches) -> Result<Options> {
        let has = |name: &str| matches.try_contains_id(name).unwrap_or(false);
        let mut options =
            Options { runs: matches.get_one::<usize>("runs").copied(), ..Options::default() };
        let many = |name: &str| -> Vec<String> {
            let given = matches.try_get_many::<String>(name).ok().flatten();
            given.into_iter().flatten().cloned().collect()
        };
        (options.also, options.ablate) = (many("also"), many("ablate"));
        for also in &options.also {
            let is_file = std::path::Path::new(also).is_file();
            is_file.then_some(()).with_context(|| format!("--also {also}: no such file"))?;
        }
        options.reserve = has("reserve") && matches.get_flag("reserve");
        for (name, default) in &case.options {
            let given = many(name);
            let default = default.split(',').filter(|word| !word.is_empty()).map(String::from);
            options
                .values
                .push((name.clone(), if given.is_empty() { default.collect() } else { given }));
        }
        Ok(options)
    }

    /// Values of an option; none if it has none.
    pub fn all(&self, name: &str) -> &[String] {
        self.values.iter().find(|(known, _)| known == name).map_or(&[], |(_, values)| values)
    }

    pub fn first(&self, name: &str) -> Option<&str> {
        self.all(name).first().map(String::as_str)
    }

    pub fn number(&self, name: &str) -> Option<f64> {
        self.first(name)?.parse().ok()
    }

    /// Whether `--only` leaves a row in.
    pub fn wants(&self, name: &str) -> bool {
        let only = self.all("only");
        only.is_empty() || only.iter().any(|each| each == name)
    }

    /// Whether it leaves a sheet in that has a name.
    pub fn wants_sheet(&self, sheet: &Sheet) -> bool {
        sheet.name.is_empty() || self.wants(&sheet.name)
    }
}
