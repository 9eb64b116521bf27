//! The cgroups that bound a process's memory and its number of tasks, of version 2 and of version 1.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use prezero_sys::file;

use super::{field, read, read_number};

/// Share of a cgroup's bound in use. At `memory.high` the kernel throttles the program's own
/// allocations; the rest is the time left to give back.
/// Moved by: tests of `pressure::cgroup`.
const USED_SHARE: f64 = 0.95;

/// The files of one cgroup.
#[derive(Debug)]
pub(super) struct Group {
    current: PathBuf,
    high: PathBuf,
    max: PathBuf,
    stat: PathBuf,
    /// What the kernel can drop of it and of all below it, in `stat`.
    cache: &'static str,
}

impl Group {
    /// Those of version 2, by their directories, and then those of version 1.
    pub(super) fn of_both(root: &Path, dirs: &[PathBuf]) -> Vec<Group> {
        dirs.iter()
            .map(|dir| Group::v2(dir))
            .chain(v1_dirs(root, "memory").iter().map(|dir| Group::v1(dir)))
            .collect()
    }

    fn v2(dir: &Path) -> Group {
        Group {
            current: dir.join("memory.current"),
            high: dir.join("memory.high"),
            max: dir.join("memory.max"),
            stat: dir.join("memory.stat"),
            cache: "inactive_file",
        }
    }

    /// Without what version 1 does not have.
    fn v1(dir: &Path) -> Group {
        Group {
            current: dir.join("memory.usage_in_bytes"),
            high: PathBuf::new(),
            max: dir.join("memory.limit_in_bytes"),
            stat: dir.join("memory.stat"),
            cache: "total_inactive_file",
        }
    }

    /// What the group may hold. "max", no bound, is no number and so no information.
    pub(super) fn bound(&self) -> Option<u64> {
        [read_number(&self.high), read_number(&self.max)].into_iter().flatten().min()
    }

    /// Whether the group nears this bound, with memory that it cannot simply drop. File cache
    /// that was not used lately does not count: a group that reads much is always full of it.
    pub(super) fn is_full(&self, bound: u64) -> bool {
        let Some(current) = read_number(&self.current) else { return false };
        let allowed = bound as f64 * USED_SHARE;
        // memory.stat costs the kernel a flush of per-CPU counts: only where it decides.
        current as f64 > allowed
            && current.saturating_sub(read(&self.stat, |text| field(text, self.cache)).unwrap_or(0))
                as f64
                > allowed
    }
}

/// As many CPUs' time as this process's cgroups and those above them leave it, of either version; `None`: all.
pub fn cpu_quota(root: &Path) -> Option<f64> {
    let of = |quota: &str, period: &str| {
        let [quota, period] = [quota, period].map(|us| us.trim().parse::<f64>().unwrap_or(0.0));
        (quota > 0.0 && period > 0.0).then(|| quota / period)
    };
    let text = |path: PathBuf| file::read_all(path).ok().and_then(|it| String::from_utf8(it).ok());
    let second = dirs(root).into_iter().filter_map(|dir| {
        let text = text(dir.join("cpu.max"))?;
        text.split_once(' ').and_then(|(quota, period)| of(quota, period))
    });
    let first = v1_dirs(root, "cpu").into_iter().filter_map(|dir| {
        of(&text(dir.join("cpu.cfs_quota_us"))?, &text(dir.join("cpu.cfs_period_us"))?)
    });
    second.chain(first).min_by(f64::total_cmp)
}

/// The directories of this process's cgroup v2 and of those above it, innermost first.
pub(super) fn dirs(root: &Path) -> Vec<PathBuf> {
    let own = own_path(root, |controllers| controllers.is_empty());
    own.map_or_else(Vec::new, |own| upwards(&root.join("sys/fs/cgroup"), &own))
}

/// The same of its cgroup v1 with this controller, wherever that is mounted; what lies above the mount
/// cannot be seen.
pub(super) fn v1_dirs(root: &Path, controller: &str) -> Vec<PathBuf> {
    let has = |all: &[u8]| all.split(|&b| b == b',').any(|it| it == controller.as_bytes());
    let Some(own) = own_path(root, has) else { return Vec::new() };
    let usual = || ("/".into(), Path::new("/sys/fs/cgroup").join(controller));
    let (top, at) = v1_mount(root, controller).unwrap_or_else(usual);
    let (Ok(own), Ok(at)) =
        (Path::new("/").join(own).strip_prefix(top).map(Path::to_path_buf), at.strip_prefix("/"))
    else {
        return Vec::new();
    };
    upwards(&root.join(at), &own)
}

/// A cgroup's directory below its mount, and those above it.
fn upwards(mount: &Path, own: &Path) -> Vec<PathBuf> {
    // A path with `..` leads out of what this mount shows.
    if own.components().all(|c| matches!(c, Component::Normal(_))) {
        own.ancestors().map(|path| mount.join(path)).collect()
    } else {
        Vec::new()
    }
}

/// This process's path, relative to the root, in the hierarchy that has these controllers.
fn own_path(root: &Path, fits: impl Fn(&[u8]) -> bool) -> Option<PathBuf> {
    let table = file::read_all(root.join("proc/self/cgroup")).ok()?;
    table.split(|&b| b == b'\n').find_map(|line| {
        let mut parts = line.splitn(3, |&b| b == b':').skip(1);
        let (controllers, path) = (parts.next()?, parts.next()?);
        let path = path.strip_prefix(b"/").filter(|_| fits(controllers))?;
        Some(PathBuf::from(OsStr::from_bytes(path)))
    })
}

/// What of the hierarchy of version 1 with this controller is mounted, and where.
fn v1_mount(root: &Path, controller: &str) -> Option<(PathBuf, PathBuf)> {
    let table = String::from_utf8(file::read_all(root.join("proc/self/mountinfo")).ok()?).ok()?;
    table.lines().find_map(|line| {
        let (mount, system) = line.split_once(" - ")?;
        let mut system = system.split(' ');
        let (kind, options) = (system.next()?, system.nth(1)?);
        let mut mount = mount.split(' ').skip(3);
        let place = (mount.next()?.into(), mount.next()?.into());
        (kind == "cgroup" && options.split(',').any(|it| it == controller)).then_some(place)
    })
}
