//! The program to run: where it lies, and whether a preloaded library reaches it.
//!
//! The dynamic linker ignores `LD_PRELOAD`, or trips over it, in a program that has no
//! dynamic linker, that the kernel starts with other rights than the caller's, that is
//! built for another machine, or that brings a C library other than glibc. A filter of system calls may end a
//! program that has it. Such a program is run as it is; this file reads and tries, the kernel has the last word.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::fs::{File, Metadata};
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use prezero_sys::sandbox::{self, Trial};

/// Why there is nothing to run.
#[derive(Debug)]
pub enum Missing {
    /// No such file.
    NotFound(OsString),
    /// A file, but not one to execute.
    NotExecutable(PathBuf),
    /// A program whose interpreter, or dynamic linker, is missing.
    NoInterpreter(PathBuf, PathBuf),
}

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Missing::NotFound(name) if name.is_empty() => {
                f.write_str("no such program: \"\" (its name is empty)")
            }
            Missing::NotFound(name) if name.as_bytes().contains(&b'/') => {
                write!(f, "no such program: {} (check the path)", Path::new(name).display())
            }
            Missing::NotFound(name) => write!(
                f,
                "no such program: {} (not in PATH: install it or give its path)",
                Path::new(name).display()
            ),
            Missing::NotExecutable(path) if path.is_dir() => {
                write!(f, "{} is a directory (name a program in it)", path.display())
            }
            Missing::NotExecutable(path) => {
                let path = path.display();
                write!(f, "not executable: {path} (chmod +x it, or run its interpreter on it)")
            }
            Missing::NoInterpreter(path, interpreter) => {
                let end = interpreter.as_os_str().as_bytes().last();
                let mend = match end {
                    Some(b'\r') => "the first line ends in a carriage return: remove it",
                    _ => "install that, or mend the first line of a script",
                };
                write!(f, "{}: no such interpreter: {interpreter:?} ({mend})", path.display())
            }
        }
    }
}

/// Where execvp(3) would find `name`.
pub fn find(name: &OsStr, path: Option<OsString>) -> Result<PathBuf, Missing> {
    let mut found = Missing::NotFound(name.into());
    let folders = path.unwrap_or_else(|| "/bin:/usr/bin".into());
    let candidates: Vec<PathBuf> = match name.as_bytes() {
        b"" => vec![],
        bytes if bytes.contains(&b'/') => vec![name.into()],
        _ => std::env::split_paths(&folders).map(|folder| here(folder).join(name)).collect(),
    };
    for candidate in candidates {
        match candidate.metadata() {
            Ok(file) if file.is_file() && file.mode() & 0o111 != 0 => return Ok(candidate),
            Ok(_) => found = Missing::NotExecutable(candidate),
            Err(_) => {}
        }
    }
    Err(found)
}

/// The interpreter or dynamic linker, if that is what the kernel did not find when it was to start `path`.
pub fn without_interpreter(path: &Path) -> Option<Missing> {
    let mut each = path.to_path_buf();
    for _ in 0..=MAX_SCRIPTS {
        let next = match head(&File::open(&each).ok()?) {
            Head::Script(interpreter) => interpreter,
            Head::Elf(elf) => {
                let name = elf.linker?;
                let name = name.split(|&byte| byte == 0).next().unwrap_or_default();
                Path::new(OsStr::from_bytes(name)).to_path_buf()
            }
            Head::Unknown => return None,
        };
        if !next.exists() {
            return Some(Missing::NoInterpreter(path.into(), next));
        }
        each = next;
    }
    None
}

/// Whether a file is machine code of the kind that this command is.
pub fn is_for_this_machine(path: &Path) -> bool {
    let Ok(file) = File::open(path) else { return false };
    match (head(&file), ours()) {
        (Head::Elf(elf), Some(ours)) => (elf.class, elf.machine) == (ours.class, ours.machine),
        (Head::Elf(_), None) => true,
        _ => false,
    }
}

/// An empty entry of `PATH` is the current directory.
fn here(folder: PathBuf) -> PathBuf {
    if folder.as_os_str().is_empty() { ".".into() } else { folder }
}

/// Whether a preloaded library reaches a program.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fit {
    /// It does.
    Preloads,
    /// It does not.
    CannotPreload(Why),
}

/// Why a preloaded library does not reach a program.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Why {
    /// It has no dynamic linker.
    Static,
    /// setuid, setgid or file capabilities.
    Privileged,
    /// A filter of system calls would end it for what the library calls.
    Filtered,
    /// Another class or architecture of machine code than ours.
    OtherMachine,
    /// Its dynamic linker is not glibc's.
    OtherLibc,
    /// It is built with a sanitizer, which must do the allocation.
    Sanitized,
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Why::Static => "is statically linked",
            Why::Privileged => "changes its rights when it starts (setuid, setgid or capabilities)",
            Why::OtherMachine => "is built for another kind of machine",
            Why::OtherLibc => "is not linked with glibc",
            Why::Filtered => "starts under a filter (seccomp) that ends it for calls of prezero",
            Why::Sanitized => "is built with a sanitizer, which does its own allocation",
        })
    }
}

/// How many scripts may stand before a program: the kernel follows five.
const MAX_SCRIPTS: usize = 5;

/// Looks at the program that the kernel would load for `path`. What cannot be read or
/// understood counts as fit: glibc's linker warns and goes on.
pub fn fit(path: &Path) -> Fit {
    let mut path = path.to_path_buf();
    for _ in 0..MAX_SCRIPTS {
        let Ok(file) = File::open(&path) else { return Fit::Preloads };
        match head(&file) {
            Head::Script(interpreter) => path = interpreter,
            // execvp(3) hands what the kernel does not know to the shell.
            Head::Unknown => path = "/bin/sh".into(),
            Head::Elf(elf) => {
                let privileged = file.metadata().is_ok_and(|meta| changes_rights(&meta, &caller()))
                    || has_capabilities(&path);
                return match elf.why(&ours()) {
                    Some(why) => Fit::CannotPreload(why),
                    None if privileged => Fit::CannotPreload(Why::Privileged),
                    None if is_filtered_too_far() => Fit::CannotPreload(Why::Filtered),
                    None => Fit::Preloads,
                };
            }
        }
    }
    Fit::Preloads
}

/// Whether a filter that this process began under, and each program that it becomes, ends one for calls of the library.
fn is_filtered_too_far() -> bool {
    sandbox::is_filtered() && sandbox::trial() == Trial::Ends
}

/// How many filters a program that [`fit`] says to be fit was tried under, if any.
pub fn tried_filters() -> Option<u32> {
    sandbox::is_filtered().then(sandbox::filters).flatten()
}

/// User and group that this process acts as.
struct Caller {
    uid: u32,
    gid: u32,
}

fn caller() -> Caller {
    let own = std::fs::metadata("/proc/self");
    own.map_or(Caller { uid: 0, gid: 0 }, |own| Caller { uid: own.uid(), gid: own.gid() })
}

fn changes_rights(file: &Metadata, caller: &Caller) -> bool {
    // Without group execution the setgid bit means mandatory locking.
    let (mode, setgid) = (file.mode(), libc::S_ISGID | libc::S_IXGRP);
    (mode & libc::S_ISUID != 0 && file.uid() != caller.uid)
        || (mode & setgid == setgid && file.gid() != caller.gid)
}

fn has_capabilities(path: &Path) -> bool {
    let Ok(path) = std::ffi::CString::new(path.as_os_str().as_bytes()) else { return false };
    // Root has all capabilities already and gains none.
    caller().uid != 0
        // SAFETY: both strings end in NUL and outlive the call; with size 0 the kernel
        // writes nothing through the null pointer.
        && unsafe {
            libc::getxattr(path.as_ptr(), c"security.capability".as_ptr(), std::ptr::null_mut(), 0)
        } > 0
}

enum Head {
    Elf(Elf),
    Script(PathBuf),
    Unknown,
}

/// What an ELF header says about loading.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Elf {
    class: u8,
    machine: u16,
    /// The dynamic linker; `None` in a static program.
    linker: Option<Vec<u8>>,
    /// Whether it needs the library of a sanitizer.
    sanitized: bool,
}

impl Elf {
    fn why(&self, ours: &Option<Elf>) -> Option<Why> {
        match (&self.linker, ours) {
            (_, Some(ours)) if (self.class, self.machine) != (ours.class, ours.machine) => {
                Some(Why::OtherMachine)
            }
            (None, _) => Some(Why::Static),
            (Some(linker), _) if !linker.windows(8).any(|part| part == b"ld-linux") => {
                Some(Why::OtherLibc)
            }
            _ if self.sanitized => Some(Why::Sanitized),
            _ => None,
        }
    }
}

/// Our own header: the kind of machine that the library is built for.
fn ours() -> Option<Elf> {
    match head(&File::open("/proc/self/exe").ok()?) {
        Head::Elf(elf) => Some(elf),
        _ => None,
    }
}

const ELF64: u8 = 2;
const PT_LOAD: u32 = 1;
const PT_DYNAMIC: u32 = 2;
const PT_INTERP: u32 = 3;
const DT_STRTAB: u64 = 5;
const DT_STRSZ: u64 = 10;
/// Bytes of a table of names that are looked at.
const MOST_NAMES: u64 = 16 << 20;
/// What a program names that needs the library of a sanitizer.
const SANITIZERS: [&str; 4] = ["libasan.so", "libtsan.so", "liblsan.so", "libhwasan.so"];

fn head(mut file: &File) -> Head {
    let mut start = Vec::new();
    if file.by_ref().take(256).read_to_end(&mut start).is_err() {
        return Head::Unknown;
    }
    if let Some(line) = start.strip_prefix(b"#!") {
        let line = line.split(|&byte| byte == b'\n').next().unwrap_or_default();
        let blank = |byte: &u8| matches!(byte, b' ' | b'\t');
        return match line.split(blank).find(|word| !word.is_empty()) {
            Some(word) => Head::Script(OsStr::from_bytes(word).into()),
            None => Head::Unknown,
        };
    }
    elf(file, &start).map_or(Head::Unknown, Head::Elf)
}

fn elf(file: &File, start: &[u8]) -> Option<Elf> {
    let (class, machine) = (*start.get(4)?, number(start, 18, 2)? as u16);
    if !start.starts_with(b"\x7fELF") {
        return None;
    }
    if class != ELF64 {
        return Some(Elf { class, machine, linker: None, sanitized: false });
    }
    let (table, size, count) =
        (number(start, 32, 8)?, number(start, 54, 2)?, number(start, 56, 2)?);
    let (mut linker, mut dynamic, mut loads) = (None, None, Vec::new());
    for index in 0..count {
        let mut entry = [0; 56];
        file.read_exact_at(&mut entry, table.checked_add(index * size)?).ok()?;
        let (offset, address) = (number(&entry, 8, 8)?, number(&entry, 16, 8)?);
        let len = number(&entry, 32, 8)?;
        match number(&entry, 0, 4)? as u32 {
            PT_INTERP => linker = Some(part(file, offset, len.min(4096))?),
            PT_DYNAMIC => dynamic = Some((offset, len)),
            PT_LOAD => loads.push((address, offset, len)),
            _ => {}
        }
    }
    let sanitized = dynamic.is_some_and(|table| names_sanitizer(file, table, &loads) == Some(true));
    Some(Elf { class, machine, linker, sanitized })
}

fn part(file: &File, offset: u64, len: u64) -> Option<Vec<u8>> {
    let mut bytes = vec![0; len as usize];
    file.read_exact_at(&mut bytes, offset).ok()?;
    Some(bytes)
}

/// Whether the names that a program needs are those of a sanitizer. `loads` says what lies
/// where: address, place in the file, length.
fn names_sanitizer(
    file: &File,
    (offset, len): (u64, u64),
    loads: &[(u64, u64, u64)],
) -> Option<bool> {
    let table = part(file, offset, len.min(64 << 10))?;
    let value = |tag| {
        let entry = table.chunks_exact(16).find(|entry| number(entry, 0, 8) == Some(tag))?;
        number(entry, 8, 8)
    };
    let (names, size) = (value(DT_STRTAB)?, value(DT_STRSZ)?.min(MOST_NAMES));
    let holds = |load: &&(u64, u64, u64)| (load.0..load.0.saturating_add(load.2)).contains(&names);
    let (address, place, _) = loads.iter().find(holds)?;
    let names = part(file, place.checked_add(names - address)?, size)?;
    let sanitizer = |name: &[u8]| SANITIZERS.iter().any(|known| name.starts_with(known.as_bytes()));
    Some(names.split(|&byte| byte == 0).any(sanitizer))
}

/// A little-endian number of `bytes` bytes: a header of the other byte order reads as
/// another machine, which it is.
fn number(from: &[u8], at: usize, bytes: usize) -> Option<u64> {
    let field = from.get(at..at + bytes)?;
    Some(field.iter().rev().fold(0, |sum, &byte| sum << 8 | u64::from(byte)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn find_follows_path_and_tells_missing_from_not_executable() {
        let path = || Some(OsString::from("/nonexistent:/bin:/usr/bin"));
        assert!(find("sh".as_ref(), path()).unwrap().is_file());
        assert!(matches!(find("no-such-program".as_ref(), path()), Err(Missing::NotFound(_))));
        assert!(matches!(find("".as_ref(), path()), Err(Missing::NotFound(_))));
        let folder = find("/usr".as_ref(), path());
        assert!(folder.unwrap_err().to_string().contains("is a directory (name a program in it)"));
        let text = find("/proc/self/maps".as_ref(), path());
        assert!(matches!(text, Err(Missing::NotExecutable(_))));
    }

    #[test]
    fn a_dynamic_glibc_program_is_fit() {
        assert_eq!(fit(Path::new("/bin/sh")), Fit::Preloads);
        assert_eq!(fit(Path::new("/proc/self/exe")), Fit::Preloads);
    }

    #[test]
    fn headers_tell_static_foreign_and_musl() {
        let ours = ours();
        let like = |linker: Option<&[u8]>| Elf {
            linker: linker.map(<[u8]>::to_vec),
            ..ours.clone().unwrap()
        };
        assert_eq!(like(None).why(&ours), Some(Why::Static));
        assert_eq!(like(Some(b"/lib/ld-musl-x86_64.so.1\0")).why(&ours), Some(Why::OtherLibc));
        assert_eq!(like(Some(b"/lib64/ld-linux-x86-64.so.2\0")).why(&ours), None);
        let foreign = Elf { class: 1, ..like(None) };
        assert_eq!(foreign.why(&ours), Some(Why::OtherMachine));
    }

    #[test]
    fn rights_change_only_with_a_set_id_bit_and_towards_somebody_else() {
        let path = std::env::temp_dir().join(format!("prezero-set-id-{}", std::process::id()));
        let file = File::create(&path).unwrap();
        let with = |mode| {
            file.set_permissions(PermissionsExt::from_mode(mode)).unwrap();
            file.metadata().unwrap()
        };
        let own = Caller { uid: with(0o755).uid(), gid: with(0o755).gid() };
        let stranger = Caller { uid: own.uid + 1, gid: own.gid + 1 };

        assert!(!changes_rights(&with(0o755), &stranger));
        assert!(changes_rights(&with(0o4755), &stranger));
        assert!(changes_rights(&with(0o2755), &stranger));
        assert!(!changes_rights(&with(0o2745), &stranger), "mandatory locking");
        assert!(!changes_rights(&with(0o6755), &own));
        std::fs::remove_file(path).unwrap();
    }
}
