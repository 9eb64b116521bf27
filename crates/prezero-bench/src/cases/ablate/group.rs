//! A memory cgroup for one benchmark.

use std::fs::{File, OpenOptions};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Where the controller of memory is, and what its file for the limit is called: cgroup v1, then v2.
const HIERARCHIES: [(&str, &str); 2] =
    [("/sys/fs/cgroup/memory", "memory.limit_in_bytes"), ("/sys/fs/cgroup", "memory.max")];

/// The cgroup. It is removed when this is dropped.
#[derive(Debug)]
pub struct Group(PathBuf);

impl Group {
    /// A new one, in which processes together get no more than `limit` bytes.
    ///
    /// # Errors
    /// Why there can be none, in a line.
    pub fn new(limit: u64) -> Result<Group, String> {
        let mut why = "no memory cgroups here".to_string();
        for (root, file) in HIERARCHIES {
            let folder = Path::new(root).join(format!("prezero-bench-{}", std::process::id()));
            if let Err(error) = std::fs::create_dir(&folder) {
                why = format!("{}: {error}; run it as root", folder.display());
                continue;
            }
            let group = Group(folder);
            match OpenOptions::new().write(true).open(group.0.join(file)) {
                Ok(_) => {}
                Err(_) => {
                    why = format!("{root}: without the controller of memory");
                    continue;
                }
            }
            return match std::fs::write(group.0.join(file), limit.to_string()) {
                Ok(()) => Ok(group),
                Err(error) => Err(format!("{}: {error}", group.0.join(file).display())),
            };
        }
        Err(why)
    }

    /// Has a command begin in it.
    ///
    /// # Errors
    /// The cgroup does not take processes.
    pub fn enclose(&self, command: &mut Command) -> std::io::Result<()> {
        let members = OpenOptions::new().write(true).open(self.0.join("cgroup.procs"))?;
        let join = move || join(&members);
        // SAFETY: one system call, in a child that does nothing else before its exec.
        unsafe { command.pre_exec(join) };
        Ok(())
    }
}

/// Moves the calling process.
fn join(mut members: &File) -> std::io::Result<()> {
    std::io::Write::write_all(&mut members, b"0")
}

impl Drop for Group {
    fn drop(&mut self) {
        // It stays while a process is left in it, which is no reason to fail.
        let _ = std::fs::remove_dir(&self.0);
    }
}
