//! `prezero generate`: man pages and shell completions, from the definitions that the command
//! line is read by. For `make install` and packages; not shown in the help.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::Command;
use clap_complete::Shell;

/// The command line of `prezero generate`.
#[derive(clap::Args)]
pub struct Generate {
    /// A folder as /usr/local/share: man/man1, bash-completion, zsh and fish come below it
    folder: PathBuf,
}

impl Generate {
    /// Writes everything.
    pub fn run(&self, mut command: Command) -> Result<()> {
        let man = made(&self.folder.join("man/man1"))?;
        command = command.disable_help_subcommand(true);
        command.build();
        page(&command, &man)?;
        for (shell, folder) in [
            (Shell::Bash, "bash-completion/completions"),
            (Shell::Zsh, "zsh/site-functions"),
            (Shell::Fish, "fish/vendor_completions.d"),
        ] {
            let folder = made(&self.folder.join(folder))?;
            let file = clap_complete::generate_to(shell, &mut command, "prezero", folder)?;
            if shell == Shell::Bash {
                // By its command's name bash-completion finds it.
                std::fs::rename(&file, file.with_file_name("prezero"))?;
            }
        }
        Ok(())
    }
}

fn made(folder: &Path) -> Result<PathBuf> {
    std::fs::create_dir_all(folder).with_context(|| format!("{}", folder.display()))?;
    Ok(folder.into())
}

/// A page for a command and one for each of its own.
fn page(command: &Command, folder: &Path) -> Result<()> {
    let name = command.get_display_name().unwrap_or_else(|| command.get_name()).to_string();
    let page = clap_mangen::Man::new(command.clone())
        .title(name.to_uppercase())
        .source(concat!("prezero ", env!("CARGO_PKG_VERSION")))
        .manual("prezero");
    let file = folder.join(format!("{name}.1"));
    let mut text = vec![];
    page.render(&mut text)?;
    std::fs::write(&file, text).with_context(|| format!("{}", file.display()))?;
    let mut shown = command.get_subcommands().filter(|each| !each.is_hide_set());
    shown.try_for_each(|each| self::page(each, folder))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn every_command_has_a_page_and_every_shell_its_words() {
        let folder = std::env::temp_dir().join(format!("prezero-generate-{}", std::process::id()));
        Generate { folder: folder.clone() }.run(crate::Command::command()).unwrap();
        let read = |file: &str| std::fs::read_to_string(folder.join(file)).unwrap();
        for name in
            ["prezero", "prezero-run", "prezero-ctl-set", "prezero-bench-seeds", "prezero-top"]
        {
            assert!(read(&format!("man/man1/{name}.1")).contains(".SH SYNOPSIS"), "{name}");
        }
        assert!(!folder.join("man/man1/prezero-generate.1").exists());
        assert!(read("man/man1/prezero-run.1").contains("scrub\\-rate"));
        for file in [
            "bash-completion/completions/prezero",
            "zsh/site-functions/_prezero",
            "fish/vendor_completions.d/prezero.fish",
        ] {
            assert!(read(file).contains("scrub-rate"), "{file}");
        }
        std::fs::remove_dir_all(folder).unwrap();
    }
}
