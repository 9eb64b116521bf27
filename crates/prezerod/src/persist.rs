//! The state file: what one broker knows and the next is to know, as a text that survives any end of the process.
//!
//! Contract: the text is written to a file of its own, made durable, and renamed over the one before. So a reader
//! finds the old text or the new one, each whole. The first line has the version, the length and a checksum. A file
//! that is cut, longer, changed, or not this user's is refused in one line, and nothing of it is used. A whole one is read
//! part by part. What no broker wrote is neither renamed nor removed: it has its name from the socket's, by chance. The
//! newest text is written last. A failure is said once.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Once;
use std::thread::{Builder, JoinHandle};

use rustix::fs::OFlags;
use serde::Deserialize;
use serde::de::{DeserializeOwned, Deserializer};
use serde_json::Value;

/// What each file begins with.
/// Fixed: by it a broker knows its own files.
const MAGIC: &str = "prezerod-state";
/// The version of the text.
/// Fixed: one more with each change that an earlier broker would misread.
const VERSION: u32 = 1;
/// The content of a mark. A disk that is full takes a name without content.
/// Fixed: by it a broker knows its own marks.
const MARK: &str = "\n";
/// Largest text, bytes: more than all parts together, each of which is bounded.
/// Fixed: a bound of the broker's memory.
pub const MOST: usize = 8 << 20;
/// Longest first line, bytes.
/// Fixed: a layout.
const MOST_HEAD: usize = 64;
/// The state is saved no more often than this, ns. What is leased in that time before a kill is not counted by the next
/// broker.
/// Moved by: `ps -o cputime` of the broker.
const EACH_NS: u64 = 100_000_000;
/// Nor so often that writing the text takes more than this part of the loop's time, as a divisor.
/// Moved by: `tests/system/attack.py`.
const SHARE: u64 = 50;
/// And this often for what changes by itself, ns.
const IDLE_NS: u64 = 60_000_000_000;
/// What is in the way where a file of others lies.
const FOREIGN: &str = "no file of prezerod's; remove it";
/// What is in the way without a file.
pub const NOWHERE: &str = "there is no state file; set StateDirectory= in the unit";

/// What a file says; `None`: there is no file.
///
/// # Errors
/// The file is broken, in one line.
pub fn read<T: DeserializeOwned>(path: &Path) -> Result<Option<T>, String> {
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let file = match File::options().read(true).custom_flags(flags.bits() as i32).open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        file => file,
    };
    let said = file.and_then(|file| {
        let info = file.metadata()?;
        let own = rustix::process::geteuid().as_raw();
        if !info.is_file() || info.uid() != own || info.mode() & 0o022 != 0 {
            return Err(io::Error::other("no file that this user alone may write"));
        }
        let mut bytes = vec![];
        // A longer one is not what its first line says.
        file.take((MOST + MOST_HEAD) as u64).read_to_end(&mut bytes)?;
        let whole = String::from_utf8(bytes).unwrap_or_default();
        match whole.split_once('\n') {
            Some((first, text)) if first == head(text) => Ok(serde_json::from_str(text)?),
            _ => Err(io::Error::other("cut, changed, or of another version")),
        }
    });
    said.map(Some).map_err(|error| {
        let stays = if may_replace(path, MAGIC) { "is kept aside" } else { "stays, unwritten" };
        format!("{}: {error}; what it has is not used, and it {stays}", path.display())
    })
}

/// What a broker does not understand stays for one that does: it is renamed, in place of what was kept before.
pub fn set_aside(path: &Path) {
    let aside = path.with_extension("unread");
    if may_replace(path, MAGIC) && may_replace(&aside, MAGIC) {
        let _ = fs::rename(path, aside);
    }
}

/// Whether nothing is there, or what a broker of this user wrote: it begins so, or was cut before that.
fn may_replace(path: &Path, begins: &str) -> bool {
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let mut first = vec![];
    let own =
        File::options().read(true).custom_flags(flags.bits() as i32).open(path).and_then(|file| {
            let info = file.metadata()?;
            file.take(begins.len() as u64).read_to_end(&mut first)?;
            Ok(info.is_file() && info.uid() == rustix::process::geteuid().as_raw())
        });
    match own {
        Ok(own) => own && begins.as_bytes().starts_with(&first),
        Err(error) => error.kind() == io::ErrorKind::NotFound,
    }
}

/// Removes what a broker wrote there.
fn remove(path: &Path, begins: &str) -> io::Result<()> {
    if !may_replace(path, begins) {
        return Err(io::Error::other(FOREIGN));
    }
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Puts a text in place of the one before.
fn write(path: &Path, text: &str) -> io::Result<()> {
    if text.len() > MOST {
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, "more than the state file takes"));
    }
    let beside = path.with_extension("new");
    remove(&beside, MAGIC)
        .map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", beside.display())))?;
    if !may_replace(path, MAGIC) {
        return Err(io::Error::other(FOREIGN));
    }
    let written = File::options().write(true).create_new(true).mode(0o600).open(&beside).and_then(
        |mut file| {
            file.write_all(format!("{}\n{text}", head(text)).as_bytes())?;
            file.sync_all()
        },
    );
    written.and_then(|()| fs::rename(&beside, path)).inspect_err(|_| {
        let _ = fs::remove_file(&beside);
    })?;
    sync_dir(path)
}

/// Makes a mark of this name, which survives any end of the process and of the host, or removes it. After an error it
/// may be there or not.
fn mark(path: &Path, is_set: bool) -> io::Result<()> {
    if !is_set {
        remove(path, MARK)?;
    } else if !may_replace(path, MARK) {
        return Err(io::Error::other(FOREIGN));
    } else {
        let mut options = File::options();
        options.write(true).create(true).truncate(false).mode(0o600);
        let mut file = options.custom_flags(OFlags::NOFOLLOW.bits() as i32).open(path)?;
        let written = file.write_all(MARK.as_bytes()).and_then(|()| file.sync_all());
        written.inspect_err(|_| {
            let _ = fs::remove_file(path);
        })?;
    }
    sync_dir(path)
}

/// A name is durable with its directory.
fn sync_dir(path: &Path) -> io::Result<()> {
    let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(dir).and_then(|dir| dir.sync_all())
}

/// The file, and the thread that writes to it.
#[derive(Debug, Default)]
pub struct StateFile {
    path: Option<PathBuf>,
    writing: Option<JoinHandle<()>>,
    /// When it was saved, and with how many changes by then.
    saved: (u64, u64),
    /// The next one comes no sooner after it, ns.
    each: u64,
}

impl StateFile {
    /// Writes to this file from now on; `None`: nothing is saved.
    pub fn at(path: Option<PathBuf>) -> StateFile {
        StateFile { path, each: EACH_NS, ..StateFile::default() }
    }

    /// Whether to save, with this number of changes by now: never while a text is being written.
    pub fn is_due(&self, now: u64, changes: u64) -> bool {
        let (at, before) = self.saved;
        let passed = now.saturating_sub(at);
        let is_free = self.writing.as_ref().is_none_or(JoinHandle::is_finished);
        let is_time = passed >= IDLE_NS || (passed >= self.each && changes != before);
        self.path.is_some() && is_free && is_time
    }

    /// Saves what took the loop this time to write down, ns. A disk takes its time: a thread waits for it.
    pub fn save(&mut self, now: u64, changes: u64, text: String, took: u64) {
        self.each = EACH_NS.max(took.saturating_mul(SHARE));
        let Some(path) = self.path.clone() else { return };
        let save = move || {
            static SAID: Once = Once::new();
            if let Err(error) = write(&path, &text) {
                SAID.call_once(|| {
                    prezero_sys::log!(
                        "prezerod: {}: {error}; a broker that is killed forgets what is leased and learnt",
                        path.display()
                    );
                });
            }
        };
        self.writing = Builder::new().name("state".into()).spawn(save).ok();
        if self.writing.is_some() {
            self.saved = (now, changes);
        }
    }

    /// Saves before it returns: what an operator is told then holds after any end.
    ///
    /// # Errors
    /// It is not saved, in words.
    pub fn save_now(&mut self, text: &str) -> Result<(), String> {
        // The thread may be writing: what it has is older.
        if let Some(thread) = self.writing.take() {
            let _ = thread.join();
        }
        let path = self.path.as_ref().ok_or(NOWHERE)?;
        write(path, text).map_err(|error| format!("{}: {error}", path.display()))
    }

    /// The mark of a drain is there, or gone, once this returns.
    ///
    /// # Errors
    /// It may be either, in words.
    pub fn mark_drained(&self, is_drained: bool) -> Result<(), String> {
        let path = self.drained().ok_or(NOWHERE)?;
        mark(&path, is_drained).map_err(|error| format!("{}: {error}", path.display()))
    }

    /// Whether an earlier broker was drained.
    pub fn is_drained(&self) -> bool {
        self.drained().is_some_and(|path| path.exists() && may_replace(&path, MARK))
    }

    fn drained(&self) -> Option<PathBuf> {
        self.path.as_ref().map(|path| path.with_extension("drained"))
    }
}

/// A part of what was saved; nothing where it cannot be read.
///
/// # Errors
/// The whole is no JSON.
pub fn part<'de, D: Deserializer<'de>, T: DeserializeOwned + Default>(
    from: D,
) -> Result<T, D::Error> {
    Ok(serde_json::from_value(Value::deserialize(from)?).unwrap_or_default())
}

/// Pieces of a part that can be read.
///
/// # Errors
/// The whole is no JSON.
pub fn each<'de, D: Deserializer<'de>, T: DeserializeOwned>(from: D) -> Result<Vec<T>, D::Error> {
    Ok(in_place(from)?.into_iter().flatten().collect())
}

/// The same, each in its place.
///
/// # Errors
/// The whole is no JSON.
pub fn in_place<'de, D: Deserializer<'de>, T: DeserializeOwned>(
    from: D,
) -> Result<Vec<Option<T>>, D::Error> {
    let pieces: Vec<Value> = part(from)?;
    Ok(pieces.into_iter().map(|piece| serde_json::from_value(piece).ok()).collect())
}

fn head(text: &str) -> String {
    format!("{MAGIC} {VERSION} {} {:016x}", text.len(), checksum(text.as_bytes()))
}

/// FNV-1a, 64 bits.
fn checksum(bytes: &[u8]) -> u64 {
    // Fixed: the algorithm's.
    const BASIS: u64 = 0xcbf2_9ce4_8422_2325;
    const PRIME: u64 = 0x0100_0000_01b3;
    bytes.iter().fold(BASIS, |sum, &byte| (sum ^ u64::from(byte)).wrapping_mul(PRIME))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_comes_back_as_it_was_and_the_newest_counts() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("state");
        assert_eq!(read::<Value>(&path), Ok(None));
        for text in ["0", "{\"a\":1}", "\n\n[\n]\n"] {
            write(&path, text).unwrap();
            assert_eq!(read(&path), Ok(serde_json::from_str::<Value>(text).ok()));
        }
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1, "nothing is left beside it");
    }

    #[test]
    fn a_file_that_is_cut_anywhere_or_changed_in_any_byte_is_refused_in_one_line() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("state");
        write(&path, "{\"leases\":[1,2,3],\"demand\":{}}").unwrap();
        let whole = fs::read(&path).unwrap();
        let refused = |bytes: &[u8]| {
            fs::write(&path, bytes).unwrap();
            let line = read::<Value>(&path).unwrap_err();
            assert!(line.contains("is not used") && !line.contains('\n'), "{line}");
        };
        for len in 0..whole.len() {
            refused(&whole[..len]);
        }
        for at in 0..whole.len() {
            let mut changed = whole.clone();
            changed[at] ^= 1;
            refused(&changed);
        }
        refused(&[&whole[..], b"x"].concat());
        refused(&vec![b'x'; MOST + MOST_HEAD + 1]);
    }

    #[test]
    fn what_is_too_large_or_cannot_be_written_leaves_the_file_before() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("state");
        write(&path, "\"before\"").unwrap();
        assert!(write(&path, &"x".repeat(MOST + 1)).is_err());
        // A directory with something in it stands where the new file is to be written.
        fs::create_dir_all(path.with_extension("new").join("full")).unwrap();
        assert!(write(&path, "\"after\"").is_err());
        assert_eq!(read(&path), Ok(Some(Value::from("before"))));
    }

    #[test]
    fn what_no_broker_wrote_keeps_its_name_and_its_text() {
        let dir = tempfile::tempdir().unwrap();
        let at = |end: &str| dir.path().join("data").with_extension(end);
        let state = at("state");
        for end in ["state", "new", "unread", "drained"] {
            fs::write(at(end), "a user's").unwrap();
            let own = ["state", "new", "unread"].into_iter().filter(|other| *other != end);
            own.for_each(|own| fs::write(at(own), format!("{MAGIC} ...")).unwrap());
            let mut file = StateFile { path: Some(state.clone()), ..StateFile::default() };
            assert!(!file.is_drained());
            let _ = read::<Value>(&state).inspect_err(|_| set_aside(&state));
            let marked = [file.mark_drained(true), file.mark_drained(false)];
            assert_eq!(marked.iter().all(Result::is_err), end == "drained", "{end}: {marked:?}");
            assert_eq!(file.save_now("{}").is_err(), ["state", "new"].contains(&end), "{end}");
            assert_eq!(fs::read(at(end)).unwrap(), b"a user's");
            fs::remove_file(at(end)).unwrap();
        }
    }

    #[test]
    fn a_mark_is_there_from_its_answer_on_and_one_that_cannot_be_made_is_no_answer() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("drained");
        for is_set in [true, true, false, false, true] {
            mark(&path, is_set).unwrap();
            assert_eq!(path.exists(), is_set);
        }
        assert!(mark(&dir.path().join("none/drained"), true).is_err());
    }

    #[test]
    fn a_link_or_a_file_that_others_may_write_is_not_read() {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().unwrap();
        let (path, link) = (dir.path().join("state"), dir.path().join("link"));
        write(&path, "\"text\"").unwrap();
        std::os::unix::fs::symlink(&path, &link).unwrap();
        assert!(read::<Value>(&link).is_err());
        fs::set_permissions(&path, fs::Permissions::from_mode(0o622)).unwrap();
        assert!(read::<Value>(&path).is_err());
    }
}
