//! What a machine says of itself: files below a root, and the few things that no file says.

use std::path::{Path, PathBuf};

/// A machine.
#[derive(Debug)]
pub struct Host {
    /// Where `proc` and `sys` lie.
    pub root: PathBuf,
    /// CPUs that this process may use.
    pub cpus: usize,
}

impl Host {
    /// This one.
    pub fn here() -> Host {
        Host { root: "/".into(), cpus: std::thread::available_parallelism().map_or(1, usize::from) }
    }

    /// Whether there is such a file that can be read, or such a folder with something in it.
    pub fn has(&self, file: &str) -> bool {
        !self.names(file).is_empty() || std::fs::read(self.root.join(file)).is_ok()
    }

    /// A file, trimmed; empty if there is none.
    pub fn text(&self, file: impl AsRef<Path>) -> String {
        let text = std::fs::read_to_string(self.root.join(file));
        text.unwrap_or_default().trim().to_string()
    }

    /// The word in brackets of a setting: `always [madvise] never`.
    pub fn chosen(&self, file: &str) -> Option<String> {
        let text = self.text(file);
        let (word, _) = text.split_once('[')?.1.split_once(']')?;
        Some(word.to_string())
    }

    /// What stands behind a name in a file of lines: `Seccomp: 2`.
    pub fn field(&self, file: &str, name: &str) -> Option<String> {
        let text = self.text(file);
        let line = text.lines().find_map(|line| line.strip_prefix(name));
        line.map(|rest| rest.trim_start_matches(':').trim().to_string())
    }

    /// The names in a folder, sorted.
    pub fn names(&self, folder: &str) -> Vec<String> {
        let entries = std::fs::read_dir(self.root.join(folder)).into_iter().flatten();
        let mut names: Vec<_> =
            entries.flatten().map(|entry| entry.file_name().to_string_lossy().into()).collect();
        names.sort();
        names
    }
}
