//! The CPUs of a machine and the caches that they share, as sysfs tells them.
//!
//! A caller reads once, when it starts, since reading allocates. Files are opened by known names,
//! without `read_dir`: libc's `opendir` calls `malloc`, and the caller may be a thread that libc
//! does not know of.
//!
//! One CPU stands for all of them, the first that is online. Where cores differ, or sysfs is
//! missing as in some containers, a figure is unknown (0) rather than wrong.

use std::path::Path;

use prezero_sys::{file, thread};

/// The part of the shared cache, in quarters, that one set may fill on its way through it.
/// Beyond it scrubd clears past the cache.
/// A cloud guest is told the size of the whole cache, which it shares with other guests.
/// glibc's `memset` has the same border.
/// Moved by: `bench grid --sizes 16M,20M,24M`, `bench disturb --churn 20M`.
const FOURTHS_OF_L3: usize = 3;

/// Private caches' worth of bytes that one set may send through the shared cache, whatever size
/// the shared cache claims to have. Such a set is cleared at home if home is idle.
/// Moved by: `bench grid --idle on --sizes 16M,32M,48M,64M`, column `ideal by`.
pub const SET_L2S: usize = 20;

/// The same for a block that its owner waits for and uses at once: private caches' worth, and eighths of the shared
/// cache. Beyond it even an owner that writes every line gains by a clear past the cache. Peers clear everything
/// through it, so below it no program gets less than with them.
/// Moved by: `bench grid --idle off --sizes 20M,24M,28M,32M,48M`.
const OWN_L2S: usize = 28;
const OWN_EIGHTHS_OF_L3: usize = 7;

/// The size of a private cache that sysfs does not tell, bytes: that of today's servers.
pub const L2: usize = 2 << 20;

/// CPUs and the caches between them and memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Topology {
    /// CPUs online; those this process may use where sysfs does not say.
    pub cpus: usize,
    /// Bytes of second-level cache of one CPU; 0: unknown.
    pub l2: usize,
    /// Bytes of the third-level cache that one CPU uses; 0: unknown, or there is none. A guest
    /// sees its host's, of which it may have only a share.
    pub l3: usize,
    /// CPUs that share that third-level cache; 1 where it is unknown.
    pub l3_sharers: usize,
}

impl Topology {
    /// Where Linux keeps it.
    pub const ROOT: &str = "/sys/devices/system/cpu";

    /// Reads the tree under `root`, [`Topology::ROOT`] outside of tests.
    pub fn read(root: &Path) -> Topology {
        let online = online(root);
        let first = online.as_ref().map_or(0, |list| list.first);
        let caches = root.join(format!("cpu{first}/cache"));
        let l3 = cache(&caches, "3");
        Topology {
            cpus: online.map_or_else(usable, |list| list.count),
            l2: cache(&caches, "2").map_or(0, |cache| cache.bytes),
            l3: l3.as_ref().map_or(0, |cache| cache.bytes),
            l3_sharers: l3.map_or(1, |cache| cache.sharers),
        }
    }

    /// CPUs online, where the tree under `root` says it.
    pub fn online(root: &Path) -> Option<usize> {
        online(root).map(|list| list.count)
    }

    /// Bytes that are used together and may go through the shared cache when they are cleared
    /// ahead, unless `--scrub-cache` sets another number. A larger set displaces what
    /// neighbours keep in that cache, and all of a private cache on the way.
    pub fn set(&self) -> usize {
        self.within_l3(l2_or_guess(self.l2) * SET_L2S, 2 * FOURTHS_OF_L3)
    }

    /// Bytes that their owner uses at once and that are cleared through the shared cache.
    pub fn own_set(&self) -> usize {
        self.within_l3(own_set(self.l2), OWN_EIGHTHS_OF_L3)
    }

    fn within_l3(&self, bytes: usize, eighths: usize) -> usize {
        match self.l3 {
            0 => bytes,
            l3 => bytes.min(l3 / 8 * eighths),
        }
    }
}

/// The size of a private cache: `l2`, or [`L2`] where that is unknown (0).
pub fn l2_or_guess(l2: usize) -> usize {
    if l2 == 0 { L2 } else { l2 }
}

/// The same as [`Topology::own_set`] where no more than a private cache's size is known, or not even that (0).
pub fn own_set(l2: usize) -> usize {
    l2_or_guess(l2) * OWN_L2S
}

fn online(root: &Path) -> Option<CpuList> {
    word(&root.join("online")).and_then(|list| CpuList::parse(&list))
}

/// Bytes of a file that are looked at: a line, of which a list of many CPUs is the longest.
/// Fixed: a page, which is what sysfs tells at most.
const READ_BYTES: usize = 4096;

/// More than any CPU has: two of the first level, one of each other.
const MOST_CACHES: u32 = 16;

fn usable() -> usize {
    thread::affinity().count().max(1)
}

struct Cache {
    bytes: usize,
    sharers: usize,
}

/// The cache of that level that holds data.
fn cache(caches: &Path, level: &str) -> Option<Cache> {
    (0..MOST_CACHES).map(|number| caches.join(format!("index{number}"))).find_map(|index| {
        let is = |file, value| word(&index.join(file)).as_deref() == Some(value);
        if !is("level", level) || is("type", "Instruction") {
            return None;
        }
        let bytes = size(&word(&index.join("size"))?)?;
        let sharers = word(&index.join("shared_cpu_list")).and_then(|list| CpuList::parse(&list));
        Some(Cache { bytes, sharers: sharers.map_or(1, |list| list.count) })
    })
}

fn word(path: &Path) -> Option<String> {
    let mut text = [0; READ_BYTES];
    Some(std::str::from_utf8(file::read(path, &mut text).ok()?).ok()?.trim().to_owned())
}

/// Bytes in a size as the kernel writes it: `2048K`.
fn size(text: &str) -> Option<usize> {
    let (digits, shift) = match text.as_bytes().last()? {
        b'K' => (&text[..text.len() - 1], 10),
        b'M' => (&text[..text.len() - 1], 20),
        b'G' => (&text[..text.len() - 1], 30),
        _ => (text, 0),
    };
    digits.parse::<usize>().ok()?.checked_mul(1 << shift)
}

/// A kernel CPU list, such as `0-3,8-11`.
struct CpuList {
    first: usize,
    count: usize,
}

impl CpuList {
    fn parse(text: &str) -> Option<CpuList> {
        let mut list: Option<CpuList> = None;
        for range in text.split(',') {
            let (from, to) = range.split_once('-').unwrap_or((range, range));
            let (from, to) = (from.parse::<usize>().ok()?, to.parse::<usize>().ok()?);
            let count = to.checked_sub(from)?.checked_add(1)?;
            let before = list.unwrap_or(CpuList { first: from, count: 0 });
            list = Some(CpuList { count: before.count.checked_add(count)?, ..before });
        }
        list
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::path::PathBuf;
    use std::process;
    use std::sync::atomic::{AtomicU32, Ordering};

    /// A made-up tree, removed on drop.
    struct Tree(PathBuf);

    impl Tree {
        fn new(files: &[(&str, &str)]) -> Tree {
            static NEXT: AtomicU32 = AtomicU32::new(0);
            let id = NEXT.fetch_add(1, Ordering::Relaxed);
            let root =
                std::env::temp_dir().join(format!("prezero-topology-{}-{id}", process::id()));
            fs::create_dir(&root).unwrap();
            for (path, text) in files {
                let path = root.join(path);
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                fs::write(path, format!("{text}\n")).unwrap();
            }
            Tree(root)
        }

        fn read(files: &[(&str, &str)]) -> Topology {
            Topology::read(&Tree::new(files).0)
        }
    }

    impl Drop for Tree {
        fn drop(&mut self) {
            // What stays behind is a small directory among the temporary ones.
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn server_with_two_shared_caches_is_read() {
        let topology = Tree::read(&[
            ("online", "0-15,32-47"),
            ("cpu0/cache/index0/level", "1"),
            ("cpu0/cache/index0/type", "Data"),
            ("cpu0/cache/index0/size", "48K"),
            ("cpu0/cache/index2/level", "2"),
            ("cpu0/cache/index2/type", "Unified"),
            ("cpu0/cache/index2/size", "2048K"),
            ("cpu0/cache/index2/shared_cpu_list", "0,32"),
            ("cpu0/cache/index3/level", "3"),
            ("cpu0/cache/index3/type", "Unified"),
            ("cpu0/cache/index3/size", "32M"),
            ("cpu0/cache/index3/shared_cpu_list", "0-7,32-39"),
        ]);
        let expected = Topology { cpus: 32, l2: 2 << 20, l3: 32 << 20, l3_sharers: 16 };
        assert_eq!(topology, expected);
    }

    #[test]
    fn offline_first_cpu_is_passed_over() {
        let topology = Tree::read(&[
            ("online", "2-3"),
            ("cpu2/cache/index1/level", "2"),
            ("cpu2/cache/index1/size", "512K"),
        ]);
        assert_eq!(topology, Topology { cpus: 2, l2: 512 << 10, l3: 0, l3_sharers: 1 });
        assert_eq!(Topology::online(&Tree::new(&[("online", "2-3,7")]).0), Some(3));
    }

    #[test]
    fn instruction_caches_do_not_count() {
        let topology = Tree::read(&[
            ("online", "0"),
            ("cpu0/cache/index0/level", "2"),
            ("cpu0/cache/index0/type", "Instruction"),
            ("cpu0/cache/index0/size", "64K"),
        ]);
        assert_eq!(topology.l2, 0);
    }

    #[test]
    fn nonsense_is_unknown() {
        let topology = Tree::read(&[
            ("online", "3-1"),
            ("cpu0/cache/index2/level", "2"),
            ("cpu0/cache/index2/size", "much"),
            ("cpu0/cache/index3/level", "3"),
            ("cpu0/cache/index3/size", "8192K"),
            ("cpu0/cache/index3/shared_cpu_list", "x"),
        ]);
        assert_eq!(topology, Topology { cpus: usable(), l2: 0, l3: 8 << 20, l3_sharers: 1 });
    }

    #[test]
    fn missing_tree_leaves_defaults() {
        assert_eq!(Topology::online(Path::new("/nonexistent")), None);
        let topology = Topology::read(Path::new("/nonexistent"));
        assert_eq!(topology, Topology { cpus: usable(), l2: 0, l3: 0, l3_sharers: 1 });
    }

    #[test]
    fn this_machine_has_a_cpu() {
        assert!(Topology::read(Path::new(Topology::ROOT)).cpus >= 1);
    }
}
