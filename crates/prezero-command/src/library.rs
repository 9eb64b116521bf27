//! The libraries: where `libprezero.so`, `libprezero_lease_shim.so` and `libprezero_pinned.so` lie, and how they
//! get in front of a program's own.

use std::ffi::{CStr, OsStr, OsString, c_char};
use std::fmt;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use crate::program;

/// A library that is preloaded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Library {
    name: &'static str,
    /// Names the file when it is not beside the command.
    variable: &'static str,
}

/// The malloc family.
pub const ALLOCATOR: Library = Library { name: "libprezero.so", variable: "PREZERO_LIB" };
/// Leases for programs that take no path to their memory.
pub const LEASE_SHIM: Library =
    Library { name: "libprezero_lease_shim.so", variable: "PREZERO_LEASE_SHIM_LIB" };
/// A lease as the pinned memory of an inference server.
pub const PINNED: Library =
    Library { name: "libprezero_pinned.so", variable: "PREZERO_PINNED_LIB" };
/// Where it lies, seen from the directory of the command.
const PLACES: [&str; 3] = ["", "../lib/prezero", "../lib"];

/// Why the library cannot be preloaded.
#[derive(Debug)]
pub enum LibraryError {
    /// It is in no such place.
    Absent(Library),
    /// Its variable does not name a file.
    NoFile(Library, PathBuf),
    /// Its variable names a file that is no library for this machine.
    NoLibrary(Library, PathBuf),
    /// Its path has a character that `LD_PRELOAD` takes for another thing.
    Unnameable(PathBuf),
}

impl fmt::Display for LibraryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LibraryError::Absent(Library { name, variable }) => write!(
                f,
                "{name} is not beside the command; build it (make build) or set {variable}"
            ),
            LibraryError::NoFile(Library { name, variable, .. }, path) => {
                write!(f, "{variable}={}: no such file; name {name} itself", path.display())
            }
            LibraryError::NoLibrary(Library { name, variable, .. }, path) => write!(
                f,
                "{variable}={}: no library for this machine; name {name} itself",
                path.display()
            ),
            LibraryError::Unnameable(path) => write!(
                f,
                "{}: LD_PRELOAD cannot name a path with a space, a colon or a dollar sign; move it",
                path.display()
            ),
        }
    }
}

impl std::error::Error for LibraryError {}

/// The library's path.
pub fn find(library: Library) -> Result<PathBuf, LibraryError> {
    if let Some(given) = std::env::var_os(library.variable).filter(|path| !path.is_empty()) {
        let path = PathBuf::from(given);
        // Made absolute: the program may change its directory and start others.
        let file = path.canonicalize().ok().filter(|file| file.is_file());
        let file = file.ok_or_else(|| LibraryError::NoFile(library, path.clone()))?;
        return match program::is_for_this_machine(&file) {
            true => Ok(file),
            false => Err(LibraryError::NoLibrary(library, path)),
        };
    }
    let command = command().ok_or(LibraryError::Absent(library))?;
    let folder = command.parent().unwrap_or(Path::new("/"));
    let places = PLACES.iter().map(|place| folder.join(place).join(library.name));
    places.filter_map(|file| file.canonicalize().ok()).next().ok_or(LibraryError::Absent(library))
}

/// Where this command lies: as the kernel says or, without `/proc`, as the command was started.
fn command() -> Option<PathBuf> {
    std::env::current_exe().ok().or_else(|| {
        // SAFETY: no terms. The kernel's string, which ends in NUL and lives as long as the process.
        let path = unsafe {
            let path = libc::getauxval(libc::AT_EXECFN) as *const c_char;
            (!path.is_null()).then(|| CStr::from_ptr(path))
        };
        Path::new(OsStr::from_bytes(path?.to_bytes())).canonicalize().ok()
    })
}

/// `LD_PRELOAD` with the library first, once, and everything that was there behind it.
pub fn in_front_of(library: &Path, present: Option<OsString>) -> Result<OsString, LibraryError> {
    let separates = |byte: &u8| matches!(byte, b' ' | b':');
    let library = library.as_os_str().as_bytes();
    // A dollar sign begins a word that the dynamic linker replaces.
    if library.iter().any(|byte| separates(byte) || *byte == b'$') {
        return Err(LibraryError::Unnameable(OsStr::from_bytes(library).into()));
    }
    let present = present.unwrap_or_default().into_vec();
    let mut entries = vec![library];
    entries.extend(present.split(separates).filter(|entry| !entry.is_empty() && *entry != library));
    Ok(OsString::from_vec(entries.join(&b':')))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn composed(present: Option<&str>) -> String {
        let preload = in_front_of(Path::new("/p/libprezero.so"), present.map(OsString::from));
        preload.unwrap().into_string().unwrap()
    }

    #[test]
    fn what_was_preloaded_stays_behind() {
        assert_eq!(composed(None), "/p/libprezero.so");
        assert_eq!(composed(Some("")), "/p/libprezero.so");
        assert_eq!(composed(Some("libjemalloc.so.2")), "/p/libprezero.so:libjemalloc.so.2");
        assert_eq!(composed(Some("a.so b.so:c.so")), "/p/libprezero.so:a.so:b.so:c.so");
    }

    #[test]
    fn a_run_in_a_run_preloads_once() {
        assert_eq!(composed(Some("a.so:/p/libprezero.so")), "/p/libprezero.so:a.so");
    }

    #[test]
    fn a_path_that_ld_preload_would_split_is_refused() {
        for path in ["/my dir/libprezero.so", "/a:b/libprezero.so", "/$LIB/libprezero.so"] {
            let error = in_front_of(Path::new(path), None).unwrap_err();
            assert!(error.to_string().starts_with(&format!("{path}: ")), "{error}");
        }
    }
}
