//! Files of the kernel, each read once in a moment.
//!
//! What a request is answered depends on some twenty of them. Many requests at a time would have the broker do
//! little else than read the same files.
//!
//! Told the time; reads no clock. A reader that never tells the time reads each file anew.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The time for which what was read is not read again, ns.
/// Moved by: `tests/system/attack.py`.
pub const FRESH_NS: u64 = 2_000_000;

/// What was read, by path; `None`: it could not be.
#[derive(Clone, Debug, Default)]
pub struct FileCache {
    read: RefCell<BTreeMap<PathBuf, Option<Arc<str>>>>,
    /// When the first of these was read; `None`: the time is not told.
    since: Cell<Option<u64>>,
}

impl FileCache {
    /// It is this time.
    pub fn at(&self, now_ns: u64) {
        let fresh = |since: u64| now_ns.saturating_sub(since) < FRESH_NS;
        if !self.since.get().is_some_and(fresh) {
            self.forget();
            self.since.set(Some(now_ns));
        }
    }

    /// Something happened that these files tell of.
    pub fn forget(&self) {
        self.read.borrow_mut().clear();
    }

    /// The whole file.
    pub fn text(&self, path: &Path) -> Option<Arc<str>> {
        if let Some(known) = self.read.borrow().get(path) {
            return known.clone();
        }
        let text: Option<Arc<str>> = fs::read_to_string(path).ok().map(Into::into);
        if self.since.get().is_some() {
            self.read.borrow_mut().insert(path.to_owned(), text.clone());
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_read_anew_after_a_moment_or_when_something_happened() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        let files = FileCache::default();
        let holds = |text: &str| files.text(&path).as_deref() == Some(text);
        let write = |text: &str| fs::write(&path, text).unwrap();
        assert!(files.text(&path).is_none());
        write("one");
        assert!(holds("one"), "nobody tells the time");
        files.at(5);
        assert!(holds("one"));
        write("two");
        files.at(4 + FRESH_NS);
        assert!(holds("one"));
        files.at(5 + FRESH_NS);
        assert!(holds("two"));
        write("three");
        assert!(holds("two"));
        files.forget();
        assert!(holds("three"));
        fs::remove_file(&path).unwrap();
        files.forget();
        assert!(files.text(&path).is_none());
        write("four");
        assert!(files.text(&path).is_none(), "that it was not there is known, too");
    }
}
