//! The state file's thread: a disk takes its time, and the loop must not.
//!
//! Contract: what is newest is written last, each text whole (`state`). A text for which there is no room is not written:
//! a newer one comes. What fails is said once.

use std::path::{Path, PathBuf};
use std::sync::mpsc::{SyncSender, TrySendError, sync_channel};
use std::thread::JoinHandle;

use crate::state;

/// The state is saved no more often than this, ns. What is leased in that time before a kill is not counted by the next
/// broker.
/// Moved by: `ps -o cputime` of the broker.
const EACH_NS: u64 = 100_000_000;
/// Nor so often that writing the text takes more than this part of the loop's time, as a divisor.
/// Moved by: `tests/system/attack.py`.
const SHARE: u64 = 50;
/// And this often for what changes by itself, ns.
const IDLE_NS: u64 = 60_000_000_000;

/// See the module.
#[derive(Debug, Default)]
pub struct Saver {
    path: Option<PathBuf>,
    thread: Option<(SyncSender<String>, JoinHandle<()>)>,
    /// When, and with how many changes by then.
    saved: (u64, u64),
    /// The next one comes no sooner after it, ns.
    each: u64,
}

impl Saver {
    /// Writes to this file from now on; `None`: nothing is saved.
    pub fn start(path: Option<PathBuf>) -> Saver {
        let thread = path.clone().and_then(|path| {
            let (texts, wanted) = sync_channel::<String>(1);
            let write = move || {
                let mut failed = false;
                while let Ok(text) = wanted.recv() {
                    failed |= said(&path, &text, failed);
                }
            };
            let started = std::thread::Builder::new().name("state".into()).spawn(write);
            started.ok().map(|thread| (texts, thread))
        });
        Saver { path, thread, saved: (0, 0), each: EACH_NS }
    }

    /// Whether to save, with this number of changes by now.
    pub fn is_due(&self, now: u64, changes: u64) -> bool {
        let (at, before) = self.saved;
        let passed = now.saturating_sub(at);
        self.thread.is_some() && (passed >= IDLE_NS || (passed >= self.each && changes != before))
    }

    /// Saves what took the loop this time to write down, ns.
    pub fn save(&mut self, now: u64, changes: u64, text: String, took: u64) {
        self.each = EACH_NS.max(took.saturating_mul(SHARE));
        match self.thread.as_ref().map(|(texts, _)| texts.try_send(text)) {
            Some(Err(TrySendError::Full(_))) | None => {}
            Some(Err(TrySendError::Disconnected(_))) => self.thread = None,
            Some(Ok(())) => self.saved = (now, changes),
        }
    }

    /// Saves before it returns: what an operator is told then holds after any end.
    ///
    /// # Errors
    /// It is not saved, in words.
    pub fn save_now(&mut self, text: &str) -> Result<(), String> {
        let path = self.path.clone();
        let saved = self.finish(text);
        *self = Saver::start(path);
        saved
    }

    /// The mark of a drain is there, or gone, once this returns.
    ///
    /// # Errors
    /// It may be either, in words.
    pub fn mark_drained(&self, is_drained: bool) -> Result<(), String> {
        let path = self.drained().ok_or(NOWHERE)?;
        state::mark(&path, is_drained).map_err(|error| format!("{}: {error}", path.display()))
    }

    /// Whether an earlier broker was drained.
    pub fn is_drained(&self) -> bool {
        self.drained().is_some_and(|path| path.symlink_metadata().is_ok())
    }

    fn drained(&self) -> Option<PathBuf> {
        self.path.as_ref().map(|path| path.with_extension("drained"))
    }

    /// Saves for the last time, before it returns.
    ///
    /// # Errors
    /// It is not saved, in words.
    pub fn finish(&mut self, text: &str) -> Result<(), String> {
        // The thread may be writing: what it has is older.
        if let Some((texts, thread)) = self.thread.take() {
            drop(texts);
            let _ = thread.join();
        }
        let path = self.path.take().ok_or(NOWHERE)?;
        state::write(&path, text).map_err(|error| format!("{}: {error}", path.display()))
    }
}

/// What is in the way without a file.
pub const NOWHERE: &str = "there is no state file; set StateDirectory= in the unit";

/// Writes; true: it failed, and that was said.
fn said(path: &Path, text: &str, silent: bool) -> bool {
    let Err(error) = state::write(path, text) else { return false };
    if !silent {
        prezero_sys::log!(
            "prezerod: {}: {error}; a broker that is killed forgets what is leased and learnt",
            path.display()
        );
    }
    true
}
