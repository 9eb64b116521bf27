//! The state file: a text that survives any end of the process.
//!
//! Contract: the text is written to a file of its own, made durable, and renamed over the one before. So a reader
//! finds the old text or the new one, each whole. The first line has the version, the length and a checksum. A file
//! that is cut, longer, changed, or not this user's is refused in one line, and nothing of it is used. A whole one is read
//! part by part.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use rustix::fs::OFlags;
use serde::Deserialize;
use serde::de::{DeserializeOwned, Deserializer};
use serde_json::Value;

/// What each file begins with.
const MAGIC: &str = "prezerod-state";
/// The version of the text.
/// Fixed: one more with each change that an earlier broker would misread.
const VERSION: u32 = 1;
/// Largest text, bytes: more than all parts together, each of which is bounded.
/// Fixed: a bound of the broker's memory.
pub const MOST: usize = 8 << 20;
/// Longest first line, bytes.
/// Fixed: a layout.
const MOST_HEAD: usize = 64;

/// The text of a file; `None`: there is no file.
///
/// # Errors
/// The file is broken, in one line.
pub fn read(path: &Path) -> Result<Option<String>, String> {
    let broken = |what: &str| {
        format!("{}: {what}; what it has is not used, and it is kept aside", path.display())
    };
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let file = match File::options().read(true).custom_flags(flags.bits() as i32).open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(broken(&error.to_string())),
    };
    let info = file.metadata().map_err(|error| broken(&error.to_string()))?;
    let own = rustix::process::geteuid().as_raw();
    if !info.is_file() || info.uid() != own || info.mode() & 0o022 != 0 {
        return Err(broken("no file that this user alone may write"));
    }
    let mut bytes = vec![];
    let most = (MOST + MOST_HEAD) as u64;
    file.take(most + 1).read_to_end(&mut bytes).map_err(|error| broken(&error.to_string()))?;
    if bytes.len() as u64 > most {
        return Err(broken("too large a state file"));
    }
    let text = String::from_utf8(bytes).ok();
    match text.as_deref().and_then(|whole| whole.split_once('\n')) {
        Some((first, text)) if first == head(text) => Ok(Some(text.to_owned())),
        _ => Err(broken("cut, changed, or of another version")),
    }
}

/// Puts a text in place of the one before.
///
/// # Errors
/// What the kernel answers; the file is the one before.
pub fn write(path: &Path, text: &str) -> io::Result<()> {
    if text.len() > MOST {
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, "more than the state file takes"));
    }
    let beside = path.with_extension("new");
    // What an earlier broker left there may be anything.
    let _ = fs::remove_file(&beside);
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

/// What a broker does not understand stays for one that does: it is renamed, in place of what was kept before.
pub fn set_aside(path: &Path) {
    let _ = fs::rename(path, path.with_extension("unread"));
}

/// Makes a mark of this name, which survives any end of the process and of the host, or removes it.
///
/// # Errors
/// What the kernel answers: the mark may be there or not.
pub fn mark(path: &Path, is_set: bool) -> io::Result<()> {
    if is_set {
        let mut options = File::options();
        options.write(true).create(true).truncate(false).mode(0o600);
        let mut file = options.custom_flags(OFlags::NOFOLLOW.bits() as i32).open(path)?;
        // A byte: a disk that is full takes a name without content.
        let written = file.write_all(b"\n").and_then(|()| file.sync_all());
        written.inspect_err(|_| {
            let _ = fs::remove_file(path);
        })?;
    } else if let Err(error) = fs::remove_file(path)
        && error.kind() != io::ErrorKind::NotFound
    {
        return Err(error);
    }
    sync_dir(path)
}

/// A name is durable with its directory.
fn sync_dir(path: &Path) -> io::Result<()> {
    let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(dir).and_then(|dir| dir.sync_all())
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
    let pieces = match Value::deserialize(from)? {
        Value::Array(pieces) => pieces,
        _ => vec![],
    };
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
        assert_eq!(read(&path), Ok(None));
        for text in ["", "{\"a\":1}", "\n\nlines\n"] {
            write(&path, text).unwrap();
            assert_eq!(read(&path).unwrap().as_deref(), Some(text));
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
            let line = read(&path).unwrap_err();
            assert!(line.contains("kept aside") && !line.contains('\n'), "{line}");
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
        write(&path, "before").unwrap();
        assert!(write(&path, &"x".repeat(MOST + 1)).is_err());
        // A directory with something in it stands where the new file is to be written.
        fs::create_dir_all(path.with_extension("new").join("full")).unwrap();
        assert!(write(&path, "after").is_err());
        assert_eq!(read(&path).unwrap().as_deref(), Some("before"));
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
        write(&path, "text").unwrap();
        std::os::unix::fs::symlink(&path, &link).unwrap();
        assert!(read(&link).is_err());
        fs::set_permissions(&path, fs::Permissions::from_mode(0o622)).unwrap();
        assert!(read(&path).is_err());
    }
}
