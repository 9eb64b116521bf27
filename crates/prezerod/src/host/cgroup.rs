//! Cgroups that pay for memory: where they are, how a process enters one, what is left in it.
//!
//! The kernel charges a page to the cgroup of the process that populates it: transparent pages
//! to the controller `memory`, pages of a pool to `hugetlb`. Both may lie in the one hierarchy
//! of version 2 or each in its own of version 1; hosts that mix them exist. Limits hold for a
//! cgroup and everything below, so what is left is the least on the way up to the root.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use prezero_host::Size;

use crate::host::file_cache::FileCache;
use crate::protocol::{Backing, Page};

/// The hierarchy of one controller.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Hierarchy {
    controller: &'static str,
    dir: PathBuf,
    version: Version,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Version {
    One,
    Two,
}

/// A limit, the use that counts against it, and what of that use the kernel would give up.
struct Bound {
    limit: String,
    used: String,
    reclaimable: Option<&'static str>,
}

/// What is left below a limit.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Room {
    /// Bytes; `u64::MAX`: there is no limit.
    pub left: u64,
    /// Bytes that the limit allows in all.
    pub all: u64,
    /// The limit's file; empty without one.
    pub limit: PathBuf,
}

/// The hierarchies of a host that charge memory.
#[derive(Clone, Debug)]
pub struct Cgroups {
    root: PathBuf,
    hierarchies: Vec<Hierarchy>,
    files: FileCache,
}

impl Cgroups {
    /// Those mounted below `root` (`/` but for tests).
    pub fn new(root: &Path) -> Cgroups {
        let mounts = fs::read_to_string(root.join("proc/mounts")).unwrap_or_default();
        let below = |dir: &str| root.join(dir.trim_start_matches('/'));
        let mut hierarchies = vec![];
        for controller in ["memory", "hugetlb"] {
            for line in mounts.lines() {
                let mut fields = line.split(' ').skip(1);
                let (Some(dir), Some(kind), Some(options)) =
                    (fields.next(), fields.next(), fields.next())
                else {
                    continue;
                };
                let dir = below(dir);
                let version = match kind {
                    "cgroup" if options.split(',').any(|option| option == controller) => {
                        Version::One
                    }
                    "cgroup2" if lists(&dir.join("cgroup.controllers"), controller) => Version::Two,
                    _ => continue,
                };
                hierarchies.push(Hierarchy { controller, dir, version });
                break;
            }
        }
        Cgroups { root: root.to_owned(), hierarchies, files: FileCache::default() }
    }

    /// It is this time: what was read a moment ago holds.
    pub fn at(&self, now_ns: u64) {
        self.files.at(now_ns);
    }

    /// Memory was charged: nothing that was read holds.
    pub fn forget(&self) {
        self.files.forget();
    }

    /// Moves this process into the cgroup, which is made if only its last part is missing.
    ///
    /// # Errors
    /// What is in the way, with the mend.
    pub fn enter(&self, cgroup: &str) -> Result<(), String> {
        if self.hierarchies.is_empty() {
            return Err(format!("charge = {cgroup:?}: no cgroups are mounted here"));
        }
        for hierarchy in &self.hierarchies {
            let dir = hierarchy.at(cgroup);
            let entered = match fs::create_dir(&dir) {
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
                _ => fs::write(dir.join("cgroup.procs"), "0"),
            };
            entered.map_err(|error| {
                format!(
                    "{}: {error}; make that cgroup, a leaf, and let prezerod's user write its \
                     cgroup.procs and that of the cgroup above both",
                    dir.display()
                )
            })?;
        }
        Ok(())
    }

    /// Whether such pages are charged to that cgroup itself once it is entered.
    ///
    /// # Errors
    /// The controller that is missing there, with the mend.
    pub fn charges(&self, cgroup: &str, backing: Backing, page: Page) -> Result<(), String> {
        let controller = controller(backing);
        let Some(hierarchy) = self.hierarchy(backing) else {
            return Err(format!("charge = {cgroup:?}: this host has no {controller} controller"));
        };
        let dir = hierarchy.at(cgroup);
        let there = hierarchy.bounds(page).iter().any(|bound| dir.join(&bound.used).exists());
        if there {
            return Ok(());
        }
        Err(format!(
            "{}: the {controller} controller is not enabled there; echo +{controller} > \
             {}/cgroup.subtree_control",
            dir.display(),
            dir.parent().unwrap_or(&dir).display()
        ))
    }

    /// What such pages may still take in this cgroup, and all above it; `None`: in the one of
    /// this process.
    pub fn room(&self, cgroup: Option<&str>, backing: Backing, page: Page) -> Room {
        let mut least = Room { left: u64::MAX, all: 0, limit: PathBuf::new() };
        let Some(hierarchy) = self.hierarchy(backing) else { return least };
        let own = cgroup.map(str::to_owned).or_else(|| self.own(hierarchy)).unwrap_or_default();
        let mut path = Path::new(own.trim_start_matches('/'));
        loop {
            let dir = hierarchy.dir.join(path);
            for bound in hierarchy.bounds(page) {
                let (Some(limit), Some(used)) =
                    (self.number(&dir.join(&bound.limit)), self.number(&dir.join(&bound.used)))
                else {
                    continue;
                };
                let kept = bound.reclaimable.and_then(|field| self.stat(&dir, field)).unwrap_or(0);
                let left = limit.saturating_sub(used.saturating_sub(kept));
                if left < least.left {
                    least = Room { left, all: limit, limit: dir.join(&bound.limit) };
                }
            }
            match path.parent() {
                Some(parent) => path = parent,
                None => return least,
            }
        }
    }

    /// Bytes of ordinary memory, charged to this process's cgroup, that are unaccounted: in no file and no
    /// mapping, and not free. Such pages stay on the kernel's lists, and in no count by use. `None`: no
    /// cgroup tells, or it is the root, which all processes' pages are charged to.
    pub fn unaccounted(&self) -> Option<u64> {
        let hierarchy = self.hierarchy(Backing::Thp)?;
        let own = self.own(hierarchy).filter(|own| own != "/")?;
        let dir = hierarchy.at(&own);
        let sum = |fields: &[&str]| -> Option<u64> {
            fields.iter().map(|field| self.stat(&dir, field)).sum()
        };
        let listed = sum(&[
            "inactive_anon ",
            "active_anon ",
            "inactive_file ",
            "active_file ",
            "unevictable ",
        ])?;
        let used = match hierarchy.version {
            Version::One => sum(&["rss ", "cache "]),
            Version::Two => sum(&["anon ", "file "]),
        };
        Some(listed.saturating_sub(used?))
    }

    /// Bytes of such a pool's pages that are charged to this process's cgroup; `None`: no cgroup tells.
    pub fn pooled(&self, page: Page) -> Option<u64> {
        let hierarchy = self.hierarchy(Backing::Hugetlb)?;
        let own = self.own(hierarchy).filter(|own| own != "/")?;
        let [used, _] = &hierarchy.bounds(page)[..] else { return None };
        self.number(&hierarchy.at(&own).join(&used.used))
    }

    /// The directory of a cgroup in the hierarchy that such pages are charged in.
    pub fn dir(&self, cgroup: &str, backing: Backing) -> Option<PathBuf> {
        self.hierarchy(backing).map(|hierarchy| hierarchy.at(cgroup))
    }

    fn hierarchy(&self, backing: Backing) -> Option<&Hierarchy> {
        self.hierarchies.iter().find(|h| h.controller == controller(backing))
    }

    /// This process's cgroup in a hierarchy.
    fn own(&self, hierarchy: &Hierarchy) -> Option<String> {
        let table = self.files.text(&self.root.join("proc/self/cgroup"))?;
        table.lines().find_map(|line| {
            let mut fields = line.splitn(3, ':');
            let (id, controllers, path) = (fields.next()?, fields.next()?, fields.next()?);
            let mine = match hierarchy.version {
                Version::Two => id == "0",
                Version::One => controllers.split(',').any(|c| c == hierarchy.controller),
            };
            mine.then(|| path.to_owned())
        })
    }

    /// A number of bytes; `max`, and what version 1 writes for it, is no limit and no number.
    fn number(&self, file: &Path) -> Option<u64> {
        let number = self.files.text(file)?.trim().parse::<u64>().ok()?;
        (number < i64::MAX as u64 >> 20 << 20).then_some(number)
    }

    fn stat(&self, dir: &Path, field: &str) -> Option<u64> {
        let text = self.files.text(&dir.join("memory.stat"))?;
        text.lines().find_map(|line| line.strip_prefix(field)?.trim().parse().ok())
    }
}

/// Part of a limit that is left to the cgroup's own processes, as a divisor.
/// Moved by: counter `pressure_bytes`.
const SPARE: u64 = 16;

impl Room {
    /// Bytes below the limit that stock keeps free.
    pub fn spare(&self) -> u64 {
        self.all / SPARE
    }

    /// Why stock of so much is too much, with the mend; `None`: it is not.
    pub fn refuses_stock(&self, bytes: u64) -> Option<String> {
        // Twice of what must stay: what is made is not to be given back at the next look.
        let kept = self.spare().saturating_mul(2);
        (bytes.saturating_add(kept) > self.left).then(|| {
            let mib = |bytes: u64| Size((bytes >> 20 << 20) as usize);
            let (left, kept, limit) = (mib(self.left), mib(kept), self.limit.display());
            format!("{left} left below {limit}, of which stock leaves {kept}; raise that limit")
        })
    }

    /// Why so much is too much, with the mend; `None`: it is not.
    pub fn refuses(&self, bytes: u64) -> Option<String> {
        (bytes > self.left).then(|| {
            let (size, left) = (Size(bytes as usize), Size((self.left >> 20 << 20) as usize));
            format!("{size} asked, {left} left below {}; raise that limit", self.limit.display())
        })
    }
}

impl Hierarchy {
    fn at(&self, cgroup: &str) -> PathBuf {
        self.dir.join(cgroup.trim_start_matches('/'))
    }

    fn bounds(&self, page: Page) -> Vec<Bound> {
        let bound = |limit: &str, used: &str, reclaimable| Bound {
            limit: limit.to_owned(),
            used: used.to_owned(),
            reclaimable,
        };
        if self.controller == "memory" {
            return match self.version {
                Version::One => vec![bound(
                    "memory.limit_in_bytes",
                    "memory.usage_in_bytes",
                    Some("total_inactive_file"),
                )],
                Version::Two => vec![
                    bound("memory.max", "memory.current", Some("inactive_file")),
                    bound("memory.high", "memory.current", Some("inactive_file")),
                ],
            };
        }
        let size = match page {
            Page::Huge => "hugetlb.2MB",
            Page::Giant => "hugetlb.1GB",
        };
        let (limit, used) = match self.version {
            Version::One => ("limit_in_bytes", "usage_in_bytes"),
            Version::Two => ("max", "current"),
        };
        // What is reserved counts apart: populating a page reserves it first.
        ["", "rsvd."]
            .map(|of| bound(&format!("{size}.{of}{limit}"), &format!("{size}.{of}{used}"), None))
            .into()
    }
}

fn controller(backing: Backing) -> &'static str {
    match backing {
        Backing::Hugetlb => "hugetlb",
        Backing::Thp | Backing::Tmpfs => "memory",
    }
}

fn lists(file: &Path, word: &str) -> bool {
    fs::read_to_string(file).is_ok_and(|text| text.split_whitespace().any(|other| other == word))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn host(files: &[(&str, &str)]) -> (tempfile::TempDir, Cgroups) {
        let dir = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = dir.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let cgroups = Cgroups::new(dir.path());
        (dir, cgroups)
    }

    const V2: (&str, &str) = ("proc/mounts", "cgroup2 /cg cgroup2 rw,nosuid 0 0\n");
    const BOTH: (&str, &str) = ("cg/cgroup.controllers", "cpu memory hugetlb\n");

    #[test]
    fn a_host_without_cgroups_has_no_limits_and_nothing_to_enter() {
        let (_dir, cgroups) = host(&[]);
        assert_eq!(cgroups.room(None, Backing::Thp, Page::Huge).left, u64::MAX);
        assert!(cgroups.enter("/a").unwrap_err().contains("no cgroups are mounted"));
        assert!(cgroups.charges("/a", Backing::Thp, Page::Huge).is_err());
    }

    #[test]
    fn the_least_room_on_the_way_up_counts_and_file_cache_makes_way() {
        let (dir, cgroups) = host(&[
            V2,
            BOTH,
            ("cg/a/memory.max", "16777216\n"),
            ("cg/a/memory.current", "14680064\n"),
            ("cg/a/memory.stat", "anon 5\ninactive_file 1048576\n"),
            ("cg/a/b/memory.max", "max\n"),
            ("cg/a/b/memory.high", "8388608\n"),
            ("cg/a/b/memory.current", "1048576\n"),
        ]);
        let room = cgroups.room(Some("/a/b"), Backing::Thp, Page::Huge);
        assert_eq!(
            room,
            Room { left: 3 * MIB, all: 16 * MIB, limit: dir.path().join("cg/a/memory.max") }
        );
        assert_eq!(room.refuses(3 * MIB), None);
        let text = room.refuses(4 * MIB).unwrap();
        assert!(text.starts_with("4M asked, 3M left below ") && text.contains("memory.max"));
        assert_eq!(cgroups.room(Some("/"), Backing::Thp, Page::Huge).left, u64::MAX);
        assert!(cgroups.charges("/a/b", Backing::Thp, Page::Huge).is_ok());
        let missing = cgroups.charges("/a/b", Backing::Hugetlb, Page::Huge).unwrap_err();
        assert!(missing.contains("echo +hugetlb > ") && missing.contains("cg/a/cgroup.subtree"));
    }

    #[test]
    fn reservations_of_hugetlb_pages_have_limits_of_their_own_by_size() {
        let (_dir, cgroups) = host(&[
            V2,
            BOTH,
            ("proc/self/cgroup", "3:cpu:/x\n0::/a\n"),
            ("cg/a/hugetlb.2MB.max", "max\n"),
            ("cg/a/hugetlb.2MB.current", "0\n"),
            ("cg/a/hugetlb.2MB.rsvd.max", "8388608\n"),
            ("cg/a/hugetlb.2MB.rsvd.current", "2097152\n"),
            ("cg/a/hugetlb.1GB.max", "0\n"),
            ("cg/a/hugetlb.1GB.current", "0\n"),
        ]);
        assert_eq!(cgroups.room(None, Backing::Hugetlb, Page::Huge).left, 6 * MIB);
        assert_eq!(cgroups.room(None, Backing::Hugetlb, Page::Giant).left, 0);
        assert_eq!(cgroups.room(None, Backing::Thp, Page::Huge).left, u64::MAX);
    }

    #[test]
    fn controllers_of_version_1_lie_in_hierarchies_of_their_own() {
        let (_dir, cgroups) = host(&[
            ("proc/mounts", "cgroup /m cgroup rw,memory 0 0\ncgroup2 /cg cgroup2 rw 0 0\n"),
            ("cg/cgroup.controllers", "hugetlb\n"),
            ("proc/self/cgroup", "4:memory:/t\n0::/\n"),
            ("m/memory.limit_in_bytes", "9223372036854771712\n"),
            ("m/memory.usage_in_bytes", "5\n"),
            ("m/t/memory.limit_in_bytes", "4194304\n"),
            ("m/t/memory.usage_in_bytes", "2097152\n"),
        ]);
        assert_eq!(cgroups.room(None, Backing::Thp, Page::Huge).left, 2 * MIB);
        let versions = cgroups.hierarchies.iter().map(|h| (h.controller, h.version));
        assert_eq!(
            versions.collect::<Vec<_>>(),
            [("memory", Version::One), ("hugetlb", Version::Two)]
        );
    }
}
