//! Where the processes of a run tell what they did: a name in memory (`/dev/shm`), of a file that the library makes
//! when a child has something to tell, and removes when the run ends.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::path::{Path, PathBuf};

/// Files there last as long as the machine runs, and cost no disk.
const FOLDER: &str = "/dev/shm";
const PREFIX: &str = "prezero-tree-";
/// Entries of the folder that are looked at, at most: a program's start waits for it.
const LOOKS: usize = 256;

/// A name that no one can know beforehand; `None` where no file could be made.
pub fn place() -> Option<PathBuf> {
    let folder = Path::new(FOLDER);
    if rustix::fs::access(folder, rustix::fs::Access::WRITE_OK).is_err() {
        return None;
    }
    sweep(folder, |pid| Path::new("/proc").join(pid).exists());
    let random = RandomState::new().build_hasher().finish();
    Some(folder.join(format!("{PREFIX}{}-{random:016x}", std::process::id())))
}

/// Removes files of runs that were killed. Those of other users stay: the kernel refuses.
fn sweep(folder: &Path, lives: impl Fn(&str) -> bool) {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten().take(LOOKS);
    for entry in entries {
        let name = entry.file_name();
        let run = name.to_str().and_then(|name| name.strip_prefix(PREFIX)?.split_once('-'));
        if run.is_some_and(|(pid, _)| pid.parse::<u32>().is_ok() && !lives(pid)) {
            let _ = std::fs::remove_file(entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_killed_runs_left_is_removed_and_nothing_else() {
        let folder = std::env::temp_dir().join(format!("prezero-tree-test-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let names = ["prezero-tree-7-ab", "prezero-tree-8-cd", "prezero-tree-x-1", "other-7-ab"];
        names.iter().for_each(|name| std::fs::write(folder.join(name), "").unwrap());
        sweep(&folder, |pid| pid == "8");
        let left = names.map(|name| folder.join(name).exists());
        std::fs::remove_dir_all(&folder).unwrap();
        assert_eq!(left, [false, true, true, true]);
    }

    #[test]
    fn a_place_is_new_each_time() {
        assert!(place().is_none() || place() != place());
    }
}
