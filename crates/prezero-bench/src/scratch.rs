//! A directory for what a benchmark's programs write, gone with its owner.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{Context, Result};

/// The directory.
#[derive(Debug)]
pub struct Scratch(PathBuf);

impl Scratch {
    /// A new one in the temporary directory.
    pub fn new() -> Result<Scratch> {
        static MADE: AtomicUsize = AtomicUsize::new(0);
        let (process, nth) = (std::process::id(), MADE.fetch_add(1, Ordering::Relaxed));
        let folder = std::env::temp_dir().join(format!("prezero-bench-{process}-{nth}"));
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
