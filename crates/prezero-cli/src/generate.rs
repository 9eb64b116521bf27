//! `prezero generate`: man pages and shell completions, from the definitions that the command
//! line is read by. For `make install` and packages; not shown in the help.
//!
//! `prezero-bench generate` comes after it, adds its own pages and completes `prezero bench`.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::builder::PossibleValuesParser;
use clap::{Arg, Command, ValueHint};
use clap_complete::Shell;
use prezero::internal::{KNOBS, Knob};
use prezero_command::pages;

/// The command line of `prezero generate`.
#[derive(clap::Args)]
pub struct Generate {
    /// A folder as /usr/local/share: man/man1, bash-completion, zsh and fish come below it
    folder: PathBuf,
}

impl Generate {
    /// Writes the pages of `manual` and of all below it, and completions for `prezero`, the
    /// whole command line.
    ///
    /// # Errors
    /// A file cannot be written.
    pub fn run(&self, manual: &Command, prezero: &Command) -> Result<()> {
        let man = made(&self.folder.join("man/man1"))?;
        let mut manual = manual.clone().disable_help_subcommand(true);
        manual.build();
        pages::write(&manual, &man, sections)?;
        let mut command = worded(prezero.clone().disable_help_subcommand(true));
        for (shell, folder) in [
            (Shell::Bash, "bash-completion/completions"),
            (Shell::Zsh, "zsh/site-functions"),
            (Shell::Fish, "fish/vendor_completions.d"),
        ] {
            let folder = made(&self.folder.join(folder))?;
            let file = clap_complete::generate_to(shell, &mut command, "prezero", folder)?;
            let script = std::fs::read_to_string(&file)?;
            match shell {
                // By its command's name bash-completion finds it.
                Shell::Bash => {
                    std::fs::rename(&file, file.with_file_name("prezero"))?;
                    std::fs::write(file.with_file_name("prezero"), script + BASH_WORDS)?;
                }
                Shell::Zsh => std::fs::write(&file, zsh_words(&script))?,
                _ => std::fs::write(&file, script + &fish_knobs() + FISH_WORDS)?,
            }
        }
        Ok(())
    }
}

fn knob_names() -> impl Iterator<Item = &'static str> {
    KNOBS.iter().map(|knob| knob.name)
}

/// For completions: the words among a knob's values, and the knobs for `ctl`. Parsing wants
/// neither: most knobs take numbers too, and what a process knows is its own library's business.
fn worded(command: Command) -> Command {
    let words = |argument: Arg, knob: &'static Knob| {
        let is_word = |value: &&str| value.chars().all(|letter| letter.is_ascii_lowercase());
        let words: Vec<_> = knob.value.split('|').filter(is_word).collect();
        if words.is_empty() {
            argument
        } else {
            argument.value_parser(PossibleValuesParser::new(words))
        }
    };
    // `mut_args`, not `mut_arg`, which moves the argument behind the others: zsh goes by their order.
    let command = command.mut_subcommand("run", |run| {
        let of = |id: &str| KNOBS.iter().find(|knob| knob.name == id);
        run.mut_args(|each| match of(each.get_id().as_str()) {
            Some(knob) => words(each, knob),
            None => each,
        })
    });
    let command = command.mut_subcommand("ctl", |ctl| {
        ["get", "set"].into_iter().fold(ctl, |ctl, name| {
            let known = |each: Arg| match each.get_id().as_str() {
                "key" => each.value_parser(PossibleValuesParser::new(knob_names())),
                _ => each,
            };
            ctl.mut_subcommand(name, |each| each.mut_args(known))
        })
    });
    hinted(command)
}

/// What is no file is not completed with files' names.
fn hinted(command: Command) -> Command {
    let hint = |argument: Arg| {
        let takes = argument.get_action().takes_values();
        if !takes || argument.get_value_hint() != ValueHint::Unknown {
            return argument;
        }
        let hint = match argument.get_id().as_str() {
            "command" => ValueHint::CommandWithArguments,
            // Files among other things.
            "json" | "stats" | "add" => ValueHint::FilePath,
            _ => ValueHint::Other,
        };
        argument.value_hint(hint)
    };
    command.mut_args(hint).mut_subcommands(hinted)
}

/// What `clap_complete` leaves out for fish: words that are no options.
fn fish_knobs() -> String {
    let names: Vec<_> = knob_names().collect();
    format!(
        "complete -c prezero -n \"__fish_prezero_using_subcommand ctl\" -f\n\
         complete -c prezero -n \"__fish_prezero_using_subcommand ctl; and __fish_seen_subcommand_from get set\" \
         -a \"{}\"\n",
        names.join(" ")
    )
}

/// What only the machine knows: `prezero words` tells it when the user presses the key.
const BASH_WORDS: &str = r#"
_prezero_here() {
    _prezero "$@"
    local kind=
    case "${COMP_WORDS[1]} ${COMP_WORDS[COMP_CWORD - 1]}" in
    "ctl ctl") kind=pids ;;
    "run --engine") kind=engines ;;
    *) return ;;
    esac
    COMPREPLY=($(compgen -W "$(prezero words $kind 2>/dev/null)" -- "${COMP_WORDS[COMP_CWORD]}"))
}
complete -F _prezero_here -o bashdefault -o default prezero
"#;

const FISH_WORDS: &str = r#"complete -c prezero -n "__fish_prezero_using_subcommand ctl; and not __fish_seen_subcommand_from get set stats release" -a "(prezero words pids 2>/dev/null)"
complete -c prezero -n "__fish_prezero_using_subcommand run" -l engine -x -a "(prezero words engines 2>/dev/null)"
"#;

/// The same for zsh, whose words stand in the lines of their arguments.
fn zsh_words(script: &str) -> String {
    let here = |line: &str| {
        for (argument, kind) in [("':pid -- ", "pids"), ("'--engine=[", "engines")] {
            if let Some((rest, end)) =
                line.rsplit_once(":' ").filter(|_| line.starts_with(argument))
            {
                return format!("{rest}:_prezero_{kind}' {end}");
            }
        }
        line.to_string()
    };
    let functions = ["pids", "engines"].map(|kind| {
        format!("_prezero_{kind}() {{\n    compadd -- ${{(f)\"$(prezero words {kind} 2>/dev/null)\"}}\n}}\n")
    });
    let lines: Vec<_> = script.lines().map(here).collect();
    // Before the last lines, which call the completion.
    let script = lines.join("\n") + "\n";
    script.replacen(
        "\nif [ \"$funcstack",
        &format!("\n{}\nif [ \"$funcstack", functions.concat()),
        1,
    )
}

/// What stands in a page beside what the command line is read by.
fn sections(page: &str) -> &'static str {
    match page {
        "prezero-run" => include_str!("../man/run.inc"),
        "prezero-try" => include_str!("../man/try.inc"),
        _ => "",
    }
}

fn made(folder: &Path) -> Result<PathBuf> {
    std::fs::create_dir_all(folder).with_context(|| format!("{}", folder.display()))?;
    Ok(folder.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_has_a_page_and_every_shell_its_words() {
        let folder = std::env::temp_dir().join(format!("prezero-generate-{}", std::process::id()));
        let command = crate::command();
        Generate { folder: folder.clone() }.run(&command, &command).unwrap();
        let read = |file: &str| std::fs::read_to_string(folder.join(file)).unwrap();
        for name in ["prezero", "prezero-run", "prezero-ctl-set", "prezero-bench", "prezero-top"] {
            assert!(read(&format!("man/man1/{name}.1")).contains(".SH SYNOPSIS"), "{name}");
        }
        assert!(!folder.join("man/man1/prezero-generate.1").exists());
        assert!(read("man/man1/prezero-run.1").contains("scrub\\-rate"));
        let title = concat!(
            "\n.TH PREZERO-RUN 1 \"\" \"prezero ",
            env!("CARGO_PKG_VERSION"),
            "\" \"User commands\"\n"
        );
        assert!(read("man/man1/prezero-run.1").contains(title), "a page without a date");
        assert!(read("man/man1/prezero-ctl.1").contains(".SH EXAMPLES"), "its examples");
        for file in [
            "bash-completion/completions/prezero",
            "zsh/site-functions/_prezero",
            "fish/vendor_completions.d/prezero.fish",
        ] {
            let words = read(file);
            assert!(words.contains("scrub-rate") && words.contains("never"), "{file}");
            assert!(!words.contains("generate"), "{file} offers what packages call");
        }
        // What only this machine knows is asked when it is wanted.
        for (file, words) in [
            ("bash-completion/completions/prezero", "words $kind"),
            ("zsh/site-functions/_prezero", "lists them:_prezero_pids'"),
            ("zsh/site-functions/_prezero", "NAME:_prezero_engines'"),
            ("zsh/site-functions/_prezero", "words engines"),
            ("fish/vendor_completions.d/prezero.fish", "(prezero words pids"),
        ] {
            assert!(read(file).contains(words), "{words} in {file}");
        }
        let run = read("man/man1/prezero-run.1");
        for said in ["requests for zeroed memory", "PREZERO_TREE", "in all of N processes"] {
            assert!(run.contains(said), "{said} is explained");
        }
        // Words stand in the order in which they are typed, and no files beside them.
        let zsh = read("zsh/site-functions/_prezero");
        let set = zsh.split("\n(set)\n").nth(1).unwrap().split(";;").next().unwrap();
        let (key, value) = (set.find(":key -- ").unwrap(), set.find(":value -- ").unwrap());
        assert!(key < value && !set.contains("_default"), "{set}");
        assert!(zsh.contains("FILE]:") || zsh.contains("_files"), "files where there are some");
        std::fs::remove_dir_all(folder).unwrap();
    }
}
