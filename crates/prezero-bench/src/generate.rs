//! Man pages and completions of the benchmarks. Packages call it after `prezero generate`, whose completions it goes on with.

use std::fmt::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::Command;
use clap_complete::Shell;
use prezero_command::pages;

/// The command line of `prezero-bench generate`.
#[derive(clap::Args)]
pub struct Generate {
    /// A folder as /usr/local/share, in which prezero generate was
    folder: PathBuf,
}

/// The function of `prezero-bench` completes `prezero bench`. clap writes two underscores for the dash in its name.
const BASH: &str = r#"
_prezero_with_bench() {
    if [ "${COMP_WORDS[1]}" != bench ] || [ "$COMP_CWORD" -lt 2 ]; then
        _prezero_here "$@"
        return
    fi
    COMP_WORDS=(prezero-bench "${COMP_WORDS[@]:2}") COMP_CWORD=$((COMP_CWORD - 1))
    _prezero__bench prezero-bench "$2" "$3"
}
complete -F _prezero_with_bench -o bashdefault -o default prezero
"#;

impl Generate {
    /// Writes the pages, and adds to the completions.
    ///
    /// # Errors
    /// A file cannot be written.
    pub fn run(&self, command: &Command) -> Result<()> {
        let man = self.folder.join("man/man1");
        std::fs::create_dir_all(&man).with_context(|| man.display().to_string())?;
        let mut manual = command.clone();
        manual.build();
        pages::write(&manual, &man, |_| "")?;
        let mut own = command.clone().name("prezero-bench").bin_name("prezero-bench");
        let mut script = vec![];
        clap_complete::generate(Shell::Bash, &mut own, "prezero-bench", &mut script);
        let script = String::from_utf8(script)?;
        add(&self.folder.join("bash-completion/completions/prezero"), &(script + BASH))?;
        add(&self.folder.join("fish/vendor_completions.d/prezero.fish"), &fish(command))?;
        let zsh = self.folder.join("zsh/site-functions");
        std::fs::create_dir_all(&zsh)?;
        clap_complete::generate_to(Shell::Zsh, &mut own, "prezero-bench", zsh)?;
        Ok(())
    }
}

fn add(file: &Path, more: &str) -> Result<()> {
    let named = || file.display().to_string();
    file.parent().map_or(Ok(()), std::fs::create_dir_all).with_context(named)?;
    let there = std::fs::read_to_string(file).unwrap_or_default();
    std::fs::write(file, there + more).with_context(named)
}

/// Names of benchmarks, and the options of each.
fn fish(command: &Command) -> String {
    let (mut text, is_bench) = (String::new(), "__fish_prezero_using_subcommand bench");
    for each in command.get_subcommands().filter(|each| !each.is_hide_set()) {
        let name = each.get_name();
        let about = each.get_about().map(|about| about.to_string().replace('\'', ""));
        let about = about.unwrap_or_default();
        let _ = writeln!(text, "complete -c prezero -n \"{is_bench}\" -f -a {name} -d '{about}'");
        for option in each.get_arguments().filter_map(clap::Arg::get_long) {
            let of_it = format!("{is_bench}; and __fish_seen_subcommand_from {name}");
            let _ = writeln!(text, "complete -c prezero -n \"{of_it}\" -l {option}");
        }
    }
    text
}
