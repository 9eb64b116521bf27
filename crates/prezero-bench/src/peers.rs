//! The allocators that are measured, each through the same door: a program that knows
//! nothing of it, `LD_PRELOAD`, and the environment.
//!
//! Each stands at its default, as its package installs it. jemalloc and mimalloc give memory back
//! to the kernel while a program idles (after some 10 s, and after tens of milliseconds): pauses of
//! 3 ms mostly hide that, longer ones make them slower than here.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Result, bail};
use serde::{Deserialize, Serialize};

use crate::machine;
use prezero_command::{companion, library};
use prezero_host::glibc::KEEP;

/// Ours, in every report.
pub const PREZERO: &str = "prezero";
/// What a program has by itself.
pub const GLIBC: &str = "glibc";

/// Where [`Allocator::command`] is to leave no statistics.
pub const NOWHERE: &str = "off";

/// Where Debian, Fedora and Arch keep shared libraries.
const FOLDERS: [&str; 5] = [
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
    "/usr/lib64",
    "/usr/lib",
    "/usr/local/lib",
];

struct Recipe {
    name: &'static str,
    /// What to preload, first that exists; none for glibc.
    libraries: &'static str,
    /// Of Debian and Ubuntu, by release.
    packages: &'static str,
    environment: &'static [(&'static str, &'static str)],
}

const fn peer(name: &'static str, libraries: &'static str, packages: &'static str) -> Recipe {
    Recipe { name, libraries, packages, environment: &[] }
}

const PEERS: [Recipe; 5] = [
    peer(GLIBC, "", "libc6"),
    Recipe { environment: &KEEP, ..peer("glibc-keep", "", "libc6") },
    peer("jemalloc", "libjemalloc.so.2", "libjemalloc2"),
    peer("mimalloc", MIMALLOC, "libmimalloc2.0 libmimalloc3"),
    peer("tcmalloc", "libtcmalloc_minimal.so.4", "libtcmalloc-minimal4 libtcmalloc-minimal4t64"),
];
const MIMALLOC: &str = "libmimalloc.so.2 libmimalloc.so.2.0 libmimalloc.so.3 libmimalloc.so";

/// What peers are called.
pub fn names() -> impl Iterator<Item = &'static str> {
    PEERS.iter().map(|peer| peer.name)
}

/// An allocator that can be measured here.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Allocator {
    /// Its column.
    pub name: String,
    /// Of the package or of ours; empty if neither says.
    pub version: String,
    /// What is preloaded; `None` for glibc.
    pub library: Option<PathBuf>,
    /// What is set.
    pub environment: Vec<(String, String)>,
}

/// An allocator that cannot.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Absent {
    /// Its name.
    pub name: String,
    /// What to do so that it can.
    pub mend: String,
}

/// Which are here, prezero last, and which are not.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Field {
    /// To be measured.
    pub allocators: Vec<Allocator>,
    /// Left out.
    pub absent: Vec<Absent>,
}

impl Field {
    /// Of a benchmark that has no allocators side by side.
    pub fn none() -> Field {
        Field { allocators: vec![], absent: vec![] }
    }

    /// prezero, and of the peers those in `only`, or all of them if it is empty.
    pub fn find(only: &[String]) -> Result<Field> {
        if let Some(unknown) = only.iter().find(|name| PEERS.iter().all(|peer| peer.name != **name))
        {
            let names: Vec<_> = names().collect();
            bail!("--peers {unknown}: no such peer; give some of {}", names.join(","));
        }
        let mut field = Field { allocators: vec![], absent: vec![] };
        let asked = |peer: &&Recipe| only.is_empty() || only.iter().any(|name| name == peer.name);
        for peer in PEERS.iter().filter(asked) {
            match peer.find() {
                Ok(allocator) => field.allocators.push(allocator),
                Err(absent) => field.absent.push(absent),
            }
        }
        match ours() {
            Ok(allocator) => field.allocators.push(allocator),
            Err(mend) => field.absent.push(Absent { name: PREZERO.into(), mend }),
        }
        Ok(field)
    }

    /// One line for each that is left out.
    pub fn absences(&self) -> String {
        let line = |absent: &Absent| format!("left out: {}: {}\n", absent.name, absent.mend);
        self.absent.iter().map(line).collect()
    }
}

/// prezero: its library, and the command that preloads it. Or what to do so that both are here.
fn ours() -> Result<Allocator, String> {
    let library = library::find(library::ALLOCATOR).map_err(|error| error.to_string())?;
    companion::find(companion::PREZERO).map_err(|error| error.to_string())?;
    Ok(Allocator {
        name: PREZERO.into(),
        version: env!("CARGO_PKG_VERSION").into(),
        library: Some(library),
        environment: vec![],
    })
}

impl Recipe {
    fn find(&self) -> Result<Allocator, Absent> {
        let in_folders =
            |name: &str| FOLDERS.iter().map(|f| Path::new(f).join(name)).find(|p| p.exists());
        let library = self.libraries.split_whitespace().find_map(in_folders);
        if library.is_none() && !self.libraries.is_empty() {
            let mend = format!("apt-get install {}", self.packages.replace(' ', " or "));
            return Err(Absent { name: self.name.into(), mend });
        }
        let of = |package| machine::output("dpkg-query", &["-W", "-f", "${Version}", package]);
        let version =
            self.packages.split(' ').find_map(|package| of(package).filter(|v| !v.is_empty()));
        let environment = self.environment.iter().map(|&(k, v)| (k.into(), v.into()));
        Ok(Allocator {
            name: self.name.into(),
            version: version.unwrap_or_default(),
            library,
            environment: environment.collect(),
        })
    }
}

impl Allocator {
    /// None but the C library's, for programs that are not under test.
    pub fn plain() -> Allocator {
        Allocator { name: GLIBC.into(), version: String::new(), library: None, environment: vec![] }
    }

    /// Whether it is ours.
    pub fn is_prezero(&self) -> bool {
        self.name == PREZERO
    }

    /// `program` with this allocator: the environment of this process without any
    /// allocator's settings, then its own. Ours goes through `prezero run`, as a user's
    /// program would, and leaves its statistics in `stats`.
    pub fn command(&self, program: &Path, stats: &Path) -> Result<Command> {
        let mut command;
        if self.is_prezero() {
            command = Command::new(companion::find(companion::PREZERO)?);
            command.args(["run", "--stats"]).arg(stats).arg("--").arg(program);
        } else {
            command = Command::new(program);
        }
        // Ctrl-C is for the benchmark, not for what it measures.
        command.process_group(0);
        for name in std::env::vars_os().map(|(name, _)| name).filter(|name| self.is_setting(name)) {
            command.env_remove(name);
        }
        if let Some(library) = self.library.as_ref().filter(|_| !self.is_prezero()) {
            command.env("LD_PRELOAD", library);
        }
        command.envs(self.environment.iter().map(|(name, value)| (name, value)));
        Ok(command)
    }

    /// Whether a variable would change what is measured. Knobs of ours stay for ours.
    fn is_setting(&self, name: &OsString) -> bool {
        let name = name.to_string_lossy();
        let others =
            ["LD_PRELOAD", "GLIBC_TUNABLES", "MALLOC_", "MIMALLOC_", "TCMALLOC_", "_RJEM_"];
        others.iter().any(|prefix| name.starts_with(prefix))
            || (name.starts_with("PREZERO_") && !self.is_prezero())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_peer_is_named() {
        let error = Field::find(&["hoard".into()]).unwrap_err().to_string();
        assert!(error.starts_with("--peers hoard: ") && error.contains("glibc-keep"), "{error}");
    }

    #[test]
    fn a_peer_that_is_not_installed_comes_with_its_mend() {
        let recipe = Recipe {
            libraries: "libnowhere.so.9",
            packages: "libnowhere8 libnowhere9",
            ..PEERS[2]
        };
        assert_eq!(recipe.find().unwrap_err().mend, "apt-get install libnowhere8 or libnowhere9");
    }

    #[test]
    fn only_the_peers_asked_for_are_found() {
        let field = Field::find(&["glibc".into(), "glibc-keep".into()]).unwrap();
        let names: Vec<_> = field.allocators.iter().map(|each| each.name.as_str()).collect();
        assert_eq!(names[..2], ["glibc", "glibc-keep"]);
        assert!(names[2..].iter().all(|name| *name == PREZERO));
    }

    #[test]
    fn a_peer_starts_without_the_settings_of_others() {
        let field = Field::find(&["glibc-keep".into()]).unwrap();
        let keep = &field.allocators[0];
        let command = keep.command(Path::new("/bin/true"), Path::new("/dev/null")).unwrap();
        let set: Vec<_> = command.get_envs().filter(|(_, value)| value.is_some()).collect();
        assert_eq!(set.len(), KEEP.len());
        assert!(keep.is_setting(&"LD_PRELOAD".into()) && keep.is_setting(&"PREZERO_LIMIT".into()));
    }
}
