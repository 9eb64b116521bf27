//! The stock: inodes that were populated and never handed out, oldest first.
//!
//! Contract: mechanism only; what should be in it is for `planner` to say, which client may take it for `broker`.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::inode::Kind;
use crate::protocol::{Page, Want};
use crate::tenant::Payer;

/// A larger inode is cut to a request's size if at most one part in this many of it is lost. With
/// more, clients of small leases would use up the large inodes.
/// Moved by: counter `truncated_bytes`.
const CUT: u64 = 4;

/// What a client wants, and which cgroup is charged: memory is charged where it is populated, so what
/// one cgroup paid for is no other's.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash, Serialize, Deserialize)]
pub struct Need {
    /// What.
    #[serde(flatten)]
    pub want: Want,
    /// Whose cgroup.
    pub payer: Payer,
}

/// One ready inode.
#[derive(Debug)]
pub struct StockInode<I> {
    /// The inode.
    pub file: I,
    /// What it is made of.
    pub kind: Kind,
    /// Its size.
    pub bytes: u64,
    /// When it was ready, ns.
    pub made_ns: u64,
    /// CPU time that it took, ns.
    pub cost_ns: u64,
}

/// All ready inodes.
#[derive(Debug)]
pub struct Stock<I> {
    inodes: Vec<StockInode<I>>,
    /// Kinds of which an audit found one that was not zero.
    pub quarantined: BTreeSet<Kind>,
}

impl<I> Stock<I> {
    /// Adds one, by its age: one that was reserved in vain is as old as it was.
    pub fn put(&mut self, inode: StockInode<I>) {
        let at = self.inodes.partition_point(|other| other.made_ns <= inode.made_ns);
        self.inodes.insert(at, inode);
    }

    /// Takes the inode that fits best, if that leaves `reserve` bytes of its page size, node
    /// and payer. Of equals the newest: what no request needs grows old, and shows.
    pub fn take(&mut self, need: &Need, reserve: u64) -> Option<StockInode<I>> {
        let Need { want, payer } = need;
        // By node, once: there may be thousands of inodes.
        let mut ready = BTreeMap::new();
        for inode in
            self.iter().filter(|inode| inode.kind.page == want.page && inode.kind.payer == *payer)
        {
            *ready.entry(inode.kind.node).or_insert(0) += inode.bytes;
        }
        let most = want.bytes.saturating_add(want.bytes / CUT);
        let fits = |inode: &StockInode<I>| {
            matches(&inode.kind, want.page, want.node, *payer)
                && (want.bytes..=most).contains(&inode.bytes)
                && ready.get(&inode.kind.node).is_some_and(|&all| all >= inode.bytes + reserve)
        };
        let best = self.inodes.iter().enumerate().filter(|(_, inode)| fits(inode));
        // Of equal keys min_by_key gives the first, so the position is counted from the end.
        let (at, _) = best
            .min_by_key(|(at, inode)| (inode.bytes, inode.kind.backing, std::cmp::Reverse(*at)))?;
        Some(self.inodes.remove(at))
    }

    /// Takes the oldest that `which` accepts.
    pub fn take_oldest(&mut self, which: impl Fn(&StockInode<I>) -> bool) -> Option<StockInode<I>> {
        let at = self.inodes.iter().position(which)?;
        Some(self.inodes.remove(at))
    }

    /// Takes those that `goes` accepts, oldest first.
    pub fn take_all(&mut self, mut goes: impl FnMut(&StockInode<I>) -> bool) -> Vec<StockInode<I>> {
        self.inodes.extract_if(.., |inode| goes(inode)).collect()
    }

    /// Inodes that lie ready and are just so.
    pub fn have(&self, need: &Need) -> u64 {
        self.iter().filter(|inode| alike(need, &inode.kind, inode.bytes)).count() as u64
    }

    /// All, oldest first.
    pub fn iter(&self) -> std::slice::Iter<'_, StockInode<I>> {
        self.inodes.iter()
    }

    /// Bytes ready in such pages.
    pub fn ready(&self, page: Page, node: Option<u16>, payer: Payer) -> u64 {
        self.iter().filter(|b| matches(&b.kind, page, node, payer)).map(|b| b.bytes).sum()
    }

    /// Bytes of the largest that is ready in such pages.
    pub fn largest(&self, page: Page, node: Option<u16>, payer: Payer) -> u64 {
        self.iter()
            .filter(|b| matches(&b.kind, page, node, payer))
            .map(|b| b.bytes)
            .max()
            .unwrap_or(0)
    }
}

impl<I> Default for Stock<I> {
    fn default() -> Stock<I> {
        Stock { inodes: vec![], quarantined: BTreeSet::new() }
    }
}

/// Whether pages of this kind are such, on that node and paid for so.
pub(crate) fn matches(kind: &Kind, page: Page, node: Option<u16>, payer: Payer) -> bool {
    kind.payer == payer && kind.page == page && node.is_none_or(|node| node == kind.node)
}

/// Whether an inode is just what is wanted.
pub(crate) fn alike(need: &Need, kind: &Kind, bytes: u64) -> bool {
    let Need { want, payer } = need;
    kind.payer == *payer
        && want.bytes == bytes
        && want.page == kind.page
        && want.node.is_none_or(|node| node == kind.node)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::Backing;

    const MIB: u64 = 1 << 20;

    /// Blanks of these MiB, on node 0, numbered from 0, oldest first.
    fn stock(sizes: &[u64]) -> Stock<usize> {
        let mut stock = Stock::default();
        for (inode, size) in sizes.iter().enumerate() {
            let kind =
                Kind { page: Page::Huge, backing: Backing::Thp, node: 0, payer: Payer::BROKER };
            stock.put(StockInode { file: inode, kind, bytes: size * MIB, made_ns: 0, cost_ns: 0 });
        }
        stock
    }

    fn need(mib: u64) -> Need {
        let want = Want { bytes: mib * MIB, page: Page::Huge, node: None };
        Need { want, payer: Payer::BROKER }
    }

    fn taken(stock: &mut Stock<usize>, mib: u64, reserve: u64) -> Option<usize> {
        stock.take(&need(mib), reserve * MIB).map(|inode| inode.file)
    }

    #[test]
    fn the_best_fit_is_taken_and_of_equals_the_newest() {
        let mut stock = stock(&[64, 40, 40, 32, 128]);
        assert_eq!(taken(&mut stock, 40, 0), Some(2));
        assert_eq!(taken(&mut stock, 40, 0), Some(1));
        assert_eq!(taken(&mut stock, 52, 0), Some(0));
    }

    #[test]
    fn what_would_lose_more_than_a_quarter_or_is_too_small_is_left() {
        let mut stock = stock(&[64]);
        assert_eq!(taken(&mut stock, 50, 0), None);
        assert_eq!(taken(&mut stock, 66, 0), None);
        assert_eq!(taken(&mut stock, 52, 0), Some(0));
    }

    #[test]
    fn the_reserve_stays() {
        let mut stock = stock(&[32, 32, 32]);
        assert_eq!(taken(&mut stock, 32, 40), Some(2));
        assert_eq!(taken(&mut stock, 32, 40), None);
        assert_eq!(taken(&mut stock, 32, 32), Some(1));
        assert_eq!(taken(&mut stock, 32, 0), Some(0));
    }

    #[test]
    fn other_pages_nodes_and_payers_do_not_count() {
        let mut stock = stock(&[2]);
        let Need { want, payer } = need(2);
        for other in [
            Need { want: Want { node: Some(1), ..want }, payer },
            Need { want: Want { page: Page::Giant, ..want }, payer },
            Need { want, payer: Payer(1) },
        ] {
            assert!(stock.take(&other, 0).is_none(), "{other:?}");
        }
        let ready = |node, payer| stock.ready(Page::Huge, Some(node), payer);
        assert_eq!((ready(0, payer), ready(1, payer), ready(0, Payer(1))), (2 * MIB, 0, 0));
        assert_eq!(stock.largest(Page::Huge, None, payer), 2 * MIB);
    }

    #[test]
    fn what_comes_back_is_as_old_as_it_was() {
        let mut stock = stock(&[]);
        for (inode, made_ns) in [(0, 5), (1, 9), (2, 7), (3, 5)] {
            let kind =
                Kind { page: Page::Huge, backing: Backing::Thp, node: 0, payer: Payer::BROKER };
            stock.put(StockInode { file: inode, kind, bytes: MIB, made_ns, cost_ns: 0 });
        }
        assert_eq!(
            stock.take_all(|_| true).into_iter().map(|inode| inode.file).collect::<Vec<_>>(),
            [0, 3, 2, 1]
        );
    }

    #[test]
    fn the_oldest_goes_first() {
        let mut stock = stock(&[2, 4, 2]);
        let gone = stock.take_oldest(|inode| inode.bytes == 2 * MIB).map(|inode| inode.file);
        assert_eq!(gone, Some(0));
        assert_eq!(
            stock.take_all(|_| true).into_iter().map(|inode| inode.file).collect::<Vec<_>>(),
            [1, 2]
        );
    }
}
