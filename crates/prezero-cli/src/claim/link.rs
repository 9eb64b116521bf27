//! The link that `--path` makes: a name of the lease's own, by way of the process that holds it.
//!
//! Nothing is ever removed but a link as this file makes them, `/proc/PID/fd/N`, that leads to no
//! lease any more: what a program that ended has left. Everything else that lies there is in use.

use std::fs::{self, Metadata};
use std::io::{Error, ErrorKind};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{Access, CWD, RenameFlags, access, renameat_with};

/// What lies where a link is to be.
#[derive(Clone, PartialEq, Eq, Debug)]
enum There {
    Nothing,
    /// A link that leads to a lease no more, and where to.
    Left(PathBuf),
}

/// Refuses a path where no link can be: before anything is leased.
pub fn look(path: &Path) -> Result<(), String> {
    let file = path.file_name().is_some() && !path.as_os_str().as_bytes().ends_with(b"/");
    if !file {
        return Err("is a directory; name a file in it that is not there".into());
    }
    there(path)?;
    let above = path.parent().filter(|above| !above.as_os_str().is_empty());
    let writable = access(above.unwrap_or(Path::new(".")), Access::WRITE_OK | Access::EXEC_OK);
    writable.map_err(|error| said(&error.into()))
}

/// Makes `path` a link to `here`.
pub fn make(path: &Path, here: &Path) -> Result<(), String> {
    if let There::Left(target) = there(path)? {
        clear(path, &target)?;
    }
    std::os::unix::fs::symlink(here, path).map_err(|error| said(&error))
}

/// Takes a link back that led to `here`.
pub fn remove(path: &Path, here: &Path) {
    // Whatever is in the way, it leads nowhere once this process has ended.
    let _ = clear(path, here);
}

fn there(path: &Path) -> Result<There, String> {
    let meta = match fs::symlink_metadata(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(There::Nothing),
        Err(error) => return Err(said(&error)),
        Ok(meta) => meta,
    };
    if !meta.is_symlink() {
        return Err("is there already, and stays; name a file that is not".into());
    }
    let target = fs::read_link(path).map_err(|error| said(&error))?;
    let Some(pid) = holder(&target) else {
        let target = target.display();
        return Err(format!("is a link to {target}, and stays; name a file that is not there"));
    };
    match fs::read_link(&target) {
        // One of another user's may lead to a process that only that user sees.
        Err(error) if error.kind() == ErrorKind::NotFound && is_mine(&meta) => {
            Ok(There::Left(target))
        }
        // A lease has no name. What has one belongs to a later process of that number.
        Ok(file) if is_mine(&meta) && !file.as_os_str().as_bytes().ends_with(b" (deleted)") => {
            Ok(There::Left(target))
        }
        Ok(_) => Err(format!("is in use by process {pid}; name another")),
        Err(_) => Err(format!("is another user's, of process {pid}; name another")),
    }
}

/// Whether this user made it; root may clear up after all users.
fn is_mine(meta: &Metadata) -> bool {
    let me = rustix::process::geteuid();
    me.is_root() || meta.uid() == me.as_raw()
}

/// The process of a target as this file makes them.
fn holder(target: &Path) -> Option<u32> {
    let (pid, fd) = target.to_str()?.strip_prefix("/proc/")?.split_once("/fd/")?;
    fd.parse::<u32>().ok()?;
    pid.parse().ok()
}

/// Removes the link if it leads there. Two may have found the same one left, and the first may
/// have put its own in its place meanwhile: so it is moved aside and looked at again.
fn clear(path: &Path, target: &Path) -> Result<(), String> {
    let mut aside = path.as_os_str().to_owned();
    aside.push(format!(".{}", std::process::id()));
    let aside = PathBuf::from(aside);
    match rename(path, &aside) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        other => other.map_err(|error| said(&error))?,
    }
    if fs::read_link(&aside).is_ok_and(|moved| moved == target) {
        return fs::remove_file(&aside).map_err(|error| said(&error));
    }
    rename(&aside, path).map_err(|error| said(&error))?;
    Err("another program has just taken it; name another".into())
}

/// Moves what is there, over nothing.
fn rename(from: &Path, to: &Path) -> Result<(), Error> {
    Ok(renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE)?)
}

/// What the kernel said, with the mend.
fn said(error: &Error) -> String {
    let mend = match error.kind() {
        ErrorKind::NotFound | ErrorKind::NotADirectory => "make its directory, or name another",
        ErrorKind::AlreadyExists => "another program has just taken it; name another",
        _ => "name a file where this user may make a link, in /tmp for one",
    };
    let what = error.to_string();
    let what = what.split(" (os error").next().unwrap_or_default();
    format!("{what}; {mend}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    /// A directory of the test's own, removed at its end.
    struct Dir(PathBuf);

    impl Dir {
        fn new(name: &str) -> Dir {
            let dir = std::env::temp_dir().join(format!("prezero-{name}-{}", std::process::id()));
            fs::create_dir(&dir).unwrap();
            Dir(dir)
        }

        fn at(&self, name: &str) -> PathBuf {
            self.0.join(name)
        }
    }

    impl Drop for Dir {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    /// No process has it: numbers end below.
    const GONE: &str = "/proc/4194305/fd/3";

    #[test]
    fn what_a_program_left_is_replaced_and_a_link_can_be_taken_back() {
        let dir = Dir::new("left");
        let path = dir.at("lease");
        for left in [None, Some(GONE), Some("/proc/self/../4194305/fd/3")] {
            let _ = left.map(|left| symlink(left, &path).unwrap());
            let good = left.is_none_or(|left| left == GONE);
            assert_eq!(look(&path).is_ok(), good, "{left:?}");
            if good {
                make(&path, Path::new("/proc/4194306/fd/4")).unwrap();
                assert_eq!(fs::read_link(&path).unwrap(), Path::new("/proc/4194306/fd/4"));
                remove(&path, Path::new(GONE));
                assert!(path.is_symlink(), "not that one");
                remove(&path, Path::new("/proc/4194306/fd/4"));
            }
        }
        // A number that a later process has, for a file that is no lease.
        fs::remove_file(&path).unwrap();
        let named = fs::File::open(std::env::current_exe().unwrap()).unwrap();
        let other =
            format!("/proc/{}/fd/{}", std::process::id(), std::os::fd::AsRawFd::as_raw_fd(&named));
        symlink(other, &path).unwrap();
        make(&path, Path::new(GONE)).unwrap();
        assert_eq!(fs::read_dir(&dir.0).unwrap().count(), 1, "nothing stays beside it");
    }

    #[test]
    fn nothing_that_somebody_may_need_is_removed() {
        let dir = Dir::new("kept");
        fs::write(dir.at("file"), "kept").unwrap();
        fs::create_dir(dir.at("dir")).unwrap();
        for (name, target) in
            [("to-file", "file"), ("to-dir", "dir"), ("to-nothing", "unmounted"), ("loop", "loop")]
        {
            symlink(target, dir.at(name)).unwrap();
        }
        let names = ["file", "dir", "to-file", "to-dir", "to-nothing", "loop"];
        for name in names {
            let refused = [look(&dir.at(name)), make(&dir.at(name), Path::new(GONE))];
            for refusal in refused.map(Result::unwrap_err) {
                assert!(refusal.contains("name a file that is not"), "{name}: {refusal}");
            }
            assert!(dir.at(name).symlink_metadata().is_ok(), "{name}");
        }
        assert_eq!(fs::read_dir(&dir.0).unwrap().count(), names.len());
        assert_eq!(fs::read_to_string(dir.at("to-file")).unwrap(), "kept");
    }

    #[test]
    fn a_lease_in_use_keeps_its_link() {
        let dir = Dir::new("used");
        let lease = tempfile_without_name(&dir);
        let pid = std::process::id();
        let here = format!("/proc/{pid}/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&lease));
        symlink(&here, dir.at("lease")).unwrap();
        assert_eq!(
            make(&dir.at("lease"), Path::new(GONE)).unwrap_err(),
            format!("is in use by process {pid}; name another")
        );
        // Found to be left, and then taken by another before it was removed.
        let refusal = clear(&dir.at("lease"), Path::new(GONE)).unwrap_err();
        assert!(refusal.contains("just taken"), "{refusal}");
        assert_eq!(fs::read_link(dir.at("lease")).unwrap(), Path::new(&here));
    }

    fn tempfile_without_name(dir: &Dir) -> fs::File {
        let file = fs::File::create(dir.at("nameless")).unwrap();
        fs::remove_file(dir.at("nameless")).unwrap();
        file
    }

    #[test]
    fn a_place_where_no_link_can_be_is_refused_with_the_mend() {
        let dir = Dir::new("nowhere");
        fs::write(dir.at("file"), "").unwrap();
        for (path, mend) in [
            (dir.at("missing/lease"), "make its directory"),
            (dir.at("file/lease"), "make its directory"),
            (dir.at("new/"), "is a directory"),
            ("/".into(), "is a directory"),
            ("..".into(), "is a directory"),
        ] {
            let refusal = look(&path).unwrap_err();
            assert!(refusal.contains(mend) && !refusal.contains("os error"), "{path:?}: {refusal}");
        }
        let refusal = make(Path::new("/proc/lease"), Path::new(GONE)).unwrap_err();
        assert!(refusal.contains("; "), "{refusal}");
    }
}
