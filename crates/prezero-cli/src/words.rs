//! `prezero words`: what shells complete that only this machine knows. Completions call it, and no help names it.

use std::path::Path;

use crate::stat::Stat;

/// Which words.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub enum Kind {
    /// Processes that have a panel.
    Pids,
    /// Ways to clear memory.
    Engines,
}

/// The command line of `prezero words`.
#[derive(clap::Args)]
pub struct Words {
    #[arg(value_enum)]
    kind: Kind,
}

impl Words {
    /// Prints them, one a line.
    ///
    /// # Errors
    /// Standard output takes no more.
    pub fn run(&self) -> anyhow::Result<()> {
        let words: Vec<String> = match self.kind {
            Kind::Pids => pids(Path::new("/proc")),
            Kind::Engines => prezero::clear::engines().map(|each| each.name().into()).collect(),
        };
        words.iter().try_for_each(|word| prezero_sys::print!("{word}\n"))?;
        Ok(())
    }
}

/// Those of this user, and for root all.
fn pids(proc: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(proc).into_iter().flatten().flatten();
    let numbers = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let has_panel = |pid: &u32| {
        Stat::of(*pid).is_some_and(|stat| !stat.is_ending())
            && prezero_sys::panel::of_process(*pid).is_ok()
    };
    numbers.filter(has_panel).map(|pid| pid.to_string()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_has_no_panel_is_not_offered() {
        let own = std::process::id().to_string();
        assert!(!pids(Path::new("/proc")).contains(&own));
        assert!(pids(Path::new("/no/such/folder")).is_empty());
    }
}
