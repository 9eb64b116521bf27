//! A directory for what a benchmark's programs write, gone with its owner.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// The directory.
#[derive(Debug)]
pub struct Scratch(PathBuf);

impl Scratch {
    /// Made in the temporary directory; there is one for each process of ours.
    pub fn new() -> Result<Scratch> {
        let folder = std::env::temp_dir().join(format!("prezero-bench-{}", std::process::id()));
        std::fs::create_dir_all(&folder)
            .with_context(|| format!("{}: set TMPDIR to a place to write", folder.display()))?;
        Ok(Scratch(folder))
    }

    /// A file's path in it.
    pub fn file(&self, name: impl AsRef<Path>) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // Whatever stays behind is in the temporary directory.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
