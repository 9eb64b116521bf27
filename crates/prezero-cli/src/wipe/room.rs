//! How much of the free memory may be taken such that no process is disturbed.

use std::path::Path;

use anyhow::{Context, Result};
use rustix::param::page_size;

/// What the kernel says of its memory, bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Room {
    /// All of it.
    pub total: u64,
    /// What is free.
    pub free: u64,
    /// What could be had without swapping, by the kernel's estimate: free, and much of what is cached.
    available: u64,
    /// What is free above each zone's high watermark, where reclaim rests, and above what the zone
    /// keeps for requests that other zones cannot serve.
    above: u64,
}

impl Room {
    /// As it is now.
    ///
    /// # Errors
    /// `/proc/meminfo` or `/proc/zoneinfo` cannot be read.
    pub fn of(root: &Path) -> Result<Room> {
        let read = |file: &str| {
            let path = root.join(file);
            std::fs::read_to_string(&path).with_context(|| path.display().to_string())
        };
        Ok(Room::parsed(&read("proc/meminfo")?, &read("proc/zoneinfo")?, page_size() as u64))
    }

    fn parsed(meminfo: &str, zoneinfo: &str, page: u64) -> Room {
        let kib = |name: &str| {
            let line = meminfo.lines().find_map(|line| line.strip_prefix(name));
            let number = line.and_then(|rest| rest.split_whitespace().next()?.parse::<u64>().ok());
            number.unwrap_or(0) << 10
        };
        Room {
            total: kib("MemTotal:"),
            free: kib("MemFree:"),
            available: kib("MemAvailable:"),
            above: above(zoneinfo) * page,
        }
    }

    /// Bytes that may be taken now if `leave` is to stay available.
    pub fn bytes(&self, leave: u64) -> u64 {
        self.above.min(self.available.saturating_sub(leave))
    }
}

/// Pages above what each zone keeps.
fn above(zoneinfo: &str) -> u64 {
    let mut above = 0;
    let (mut free, mut high) = (0u64, 0u64);
    for line in zoneinfo.lines() {
        let mut words = line.split_whitespace();
        match (words.next(), words.next()) {
            (Some("Node"), _) => (free, high) = (0, 0),
            (Some("pages"), Some("free")) => {
                free = words.next().and_then(|pages| pages.parse().ok()).unwrap_or(0);
            }
            // Lists of a CPU have a line `high:` each, and come later.
            (Some("high"), Some(pages)) => high = pages.parse().unwrap_or(u64::MAX),
            (Some("protection:"), _) => {
                // For requests that any zone may serve, as those of programs: the last.
                let last = line.trim_end().trim_end_matches(')').rsplit([',', '(', ' ']).next();
                let kept = last.and_then(|pages| pages.parse().ok()).unwrap_or(u64::MAX);
                above += free.saturating_sub(high.saturating_add(kept));
            }
            _ => {}
        }
    }
    above
}

#[cfg(test)]
mod tests {
    use super::*;

    const ZONES: &str = "\
Node 0, zone      DMA
  per-node stats
      nr_inactive_anon 12
  pages free     3840
        boost    0
        min      17
        low      21
        high     25
        spanned  4095
        protection: (0, 471, 471, 471, 471)
      nr_free_pages 3840
  pagesets
    cpu: 0
              count: 0
              high:  0
Node 0, zone    DMA32
  pages free     60000
        min      500
        low      625
        high     750
        protection: (0, 0, 0, 0, 0)
  pagesets
    cpu: 0
              count: 100
              high:  378
Node 0, zone  Movable
  pages free     0
        min      32
        low      32
        high     32
        protection: (0, 0, 0, 0, 0)
";
    const MEMORY: &str = "MemTotal: 500000 kB\nMemFree: 255360 kB\nMemAvailable: 300000 kB\n";

    #[test]
    fn what_watermarks_keep_is_no_room_and_neither_is_what_is_to_stay() {
        let room = Room::parsed(MEMORY, ZONES, 4096);
        assert_eq!((room.total, room.free), (500_000 << 10, 255_360 << 10));
        let above = (3840 - 25 - 471 + 60_000 - 750) * 4096;
        assert_eq!(room.bytes(0), above);
        assert_eq!(room.bytes(200_000 << 10), 100_000 << 10);
        assert_eq!(room.bytes(u64::MAX), 0);
    }

    #[test]
    fn a_zone_that_is_not_understood_has_no_room() {
        assert_eq!(
            above("Node 0, zone Normal\n  pages free 100\n  high x\n  protection: (0)\n"),
            0
        );
        assert_eq!(above("Node 0, zone Normal\n  pages free 100\n  high 9\n  protection: ()\n"), 0);
        assert_eq!(
            above("Node 0, zone Normal\n  pages free 100\n  high 9\n  protection: (0)\n"),
            91
        );
    }
}
