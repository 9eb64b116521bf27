//! Files that a test makes and then runs.
//!
//! Another process writes them. A child of another test has this process's files open until it starts its program, and
//! the kernel runs no file that is open for writing (`ETXTBSY`).

use std::ffi::OsStr;
use std::path::Path;
use std::process::Command;

/// Writes a program of this text.
#[track_caller]
pub fn write(program: &Path, text: &str) {
    let write = "printf %s \"$1\" >\"$2\" && chmod 755 \"$2\"";
    run("sh", [OsStr::new("-c"), write.as_ref(), "sh".as_ref(), text.as_ref(), program.as_ref()]);
}

/// Copies a program, or a library of one.
#[track_caller]
pub fn copy(from: &Path, to: &Path) {
    run("cp", [from, to]);
}

#[track_caller]
fn run<A: AsRef<OsStr>>(program: &str, arguments: impl IntoIterator<Item = A>) {
    let output = Command::new(program).args(arguments).env_remove("LD_PRELOAD").output().unwrap();
    assert!(output.status.success(), "{program}: {}", String::from_utf8_lossy(&output.stderr));
}
