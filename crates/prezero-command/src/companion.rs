//! The other programs of prezero: where they lie, seen from the one that runs.
//!
//! A build leaves all of them in one folder. `make install` puts what people type into `bin` and
//! what others start into `lib/prezero`.

use std::fmt;
use std::path::{Path, PathBuf};

use crate::program;

/// A program that another one starts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Companion {
    name: &'static str,
    package: &'static str,
}

/// The command itself.
pub const PREZERO: Companion = Companion { name: "prezero", package: "prezero-cli" };
/// The broker.
pub const PREZEROD: Companion = Companion { name: "prezerod", package: "prezerod" };
/// The benchmarks.
pub const BENCH: Companion = Companion { name: "prezero-bench", package: "prezero-bench" };

/// Before `PATH`, from the folder of the program that runs: beside it, where `bin` finds what is no
/// command, and the other way round.
const PLACES: [&str; 3] = ["", "../lib/prezero", "../../bin"];

/// The companion is in no such place.
#[derive(Debug)]
pub struct Absent(Companion);

impl fmt::Display for Absent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Companion { name, package } = self.0;
        write!(
            f,
            "{name} is not beside the command, in ../lib/prezero or in PATH; build it \
             (cargo build --release -p {package}) or install all of prezero (make install)"
        )
    }
}

impl std::error::Error for Absent {}

/// The companion's path.
///
/// # Errors
/// It is in no such place.
pub fn find(companion: Companion) -> Result<PathBuf, Absent> {
    let own = std::env::current_exe().unwrap_or_default();
    let folder = own.parent().unwrap_or(Path::new("/"));
    let places = PLACES.iter().map(|place| folder.join(place).join(companion.name));
    let mut found = places.filter_map(|file| program::find(file.as_os_str(), None).ok());
    let from_path = || program::find(companion.name.as_ref(), std::env::var_os("PATH")).ok();
    found.next().or_else(from_path).ok_or(Absent(companion))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_nowhere_comes_with_its_mend() {
        let nowhere = Companion { name: "prezero-nowhere", package: "prezero-somewhere" };
        let told = find(nowhere).unwrap_err().to_string();
        assert!(told.starts_with("prezero-nowhere is not beside the command"), "{told}");
        assert!(told.contains("cargo build --release -p prezero-somewhere"), "{told}");
    }
}
