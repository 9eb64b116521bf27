//! Accounts of this host: numbers by name, and owners of subordinate users (`/etc/subuid`).
//!
//! An owner may be any number of users in a user namespace. What users share is shared by owners.

use std::path::Path;

/// Most lines that are read: an owner has one or two.
const MOST: usize = 65_536;

/// Ranges of subordinate users.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Owners {
    /// The first, the one behind the last, and whose.
    ranges: Vec<(u32, u32, u32)>,
}

impl Owners {
    /// As the files below `root` say.
    pub fn read(root: &Path) -> Owners {
        let text = std::fs::read_to_string(root.join("etc/subuid")).unwrap_or_default();
        let accounts = root.join("etc/passwd");
        let range = |line: &str| {
            let mut fields = line.split(':');
            let (name, first, count) = (fields.next()?, fields.next()?, fields.next()?);
            let first: u32 = first.trim().parse().ok()?;
            let end = first.saturating_add(count.trim().parse().ok()?);
            let owner = name.parse().ok().or_else(|| look_up(&accounts, name))?;
            Some((first, end, owner))
        };
        let mut ranges: Vec<_> = text.lines().take(MOST).filter_map(range).collect();
        ranges.sort_unstable();
        Owners { ranges }
    }

    /// The owner of a user: itself, unless it is subordinate.
    pub fn of(&self, uid: u32) -> u32 {
        let behind = self.ranges.partition_point(|(first, ..)| *first <= uid);
        let last = self.ranges[..behind].last();
        last.filter(|(_, end, _)| uid < *end).map_or(uid, |(.., owner)| *owner)
    }
}

/// The number of an account in a table such as `/etc/passwd`.
pub fn look_up(table: &Path, name: &str) -> Option<u32> {
    let text = std::fs::read_to_string(table).ok()?;
    let mut rows = text.lines().map(|line| line.split(':'));
    rows.find_map(|mut row| (row.next() == Some(name)).then(|| row.nth(1)?.parse().ok())?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_subordinate_user_is_its_owners_and_any_other_its_own() {
        let root = tempfile::tempdir().unwrap();
        assert_eq!(Owners::read(root.path()).of(100_000), 100_000);
        std::fs::create_dir(root.path().join("etc")).unwrap();
        let write = |name: &str, text: &str| {
            std::fs::write(root.path().join("etc").join(name), text).unwrap();
        };
        write("passwd", "root:x:0:0::/:\nann:x:1000:1000::/:\n");
        write("subuid", "1001:165536:65536\nann:100000:65536\nnobody-knows:300000:5\nann:x:y\n\n");
        let owners = Owners::read(root.path());
        let of = [99_999, 100_000, 165_535, 165_536, 231_071, 231_072, 300_000, 0];
        let expected = [99_999, 1000, 1000, 1001, 1001, 231_072, 300_000, 0];
        assert_eq!(of.map(|uid| owners.of(uid)), expected);
    }
}
