//! How parties share the room that the limit leaves beside what operators keep.
//!
//! The even share is the largest with which all fit: a party that wants less has what it wants, and
//! no other has more than the share. Within it what a party was told to come back for comes before what is learnt of it.
//! Sizes of one party share by count, so that the first inode of each comes before the second of another.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use super::bucket::Bucket;
use super::{Keep, Party, Rank, Target};
use crate::protocol::{Backing, Page};
use crate::stock::Need;

/// What one party's bucket wants beyond what operators keep.
struct Piece {
    target: usize,
    party: Party,
    /// Backorders, or what is learnt.
    rank: Rank,
    size: u64,
    wants: u64,
    has: u64,
}

impl Piece {
    fn bytes(&self) -> u64 {
        self.wants.saturating_mul(self.size)
    }
}

/// See [`Demand::targets`](super::Demand::targets).
pub(super) fn share(
    keeps: &[Keep],
    buckets: &[Bucket],
    minute: u16,
    quotas: &BTreeMap<u16, u64>,
    mut limit: impl FnMut(&Need) -> Option<((Backing, Page), u64)>,
) -> Vec<Target> {
    let (mut targets, mut pieces) = wanted(keeps, buckets, minute);
    for (tenant, quota) in quotas {
        let own = pieces.iter_mut().filter(|piece| piece.party.tenant == *tenant);
        within(*quota, &mut own.collect::<Vec<_>>(), &mut targets);
    }
    // By pages: their limit, and all that is wanted of them.
    let mut rooms: BTreeMap<(Backing, Page), (u64, u64)> = BTreeMap::new();
    let pages: Vec<_> = targets
        .iter_mut()
        .map(|target| {
            let (pages, limit) = limit(&target.need)?;
            if target.need.want.bytes > limit {
                // It can never lie ready, and takes no room from what can.
                target.allotted = 0;
                return None;
            }
            let bytes = target.all().saturating_mul(target.need.want.bytes);
            let (_, all) = rooms.entry(pages).or_insert((limit, 0));
            *all = all.saturating_add(bytes);
            Some(pages)
        })
        .collect();
    for (pages_of, (limit, all)) in rooms {
        if all <= limit {
            continue;
        }
        let is_of = |target: usize| pages[target] == Some(pages_of);
        let mut left = limit;
        let mut fit = |wants: u64, size: u64| {
            let fits = wants.min(left / size);
            left -= fits * size;
            fits
        };
        let scarce: Vec<usize> = (0..targets.len()).filter(|&at| is_of(at)).collect();
        for &at in &scarce {
            targets[at].allotted = fit(targets[at].kept, targets[at].need.want.bytes);
        }
        let mut own: Vec<&mut Piece> =
            pieces.iter_mut().filter(|piece| is_of(piece.target)).collect();
        evenly(&mut own, left);
        own.iter().for_each(|piece| targets[piece.target].allotted += piece.has);
    }
    targets.sort_by_key(|target| Reverse(target.asked_at));
    targets
}

/// All that is wanted of each size, and what each party wants of it beyond the keeps.
fn wanted(keeps: &[Keep], buckets: &[Bucket], minute: u16) -> (Vec<Target>, Vec<Piece>) {
    let mut targets: Vec<(Target, u64)> = vec![];
    let mut at = |need: &Need| {
        targets.iter().position(|(target, _)| target.need == *need).unwrap_or_else(|| {
            let none =
                Target { need: *need, kept: 0, backorders: 0, learnt: 0, allotted: 0, asked_at: 0 };
            targets.push((none, u64::MAX));
            targets.len() - 1
        })
    };
    let kept: Vec<_> = keeps.iter().map(|keep| (at(&keep.need), keep)).collect();
    let asked: Vec<_> = buckets.iter().map(|bucket| (at(&bucket.need), bucket)).collect();
    for (at, keep) in kept {
        let (target, most) = &mut targets[at];
        target.kept = target.kept.saturating_add(keep.keep);
        *most = (*most).min(keep.most);
    }
    let mut pieces = vec![];
    for (at, bucket) in &asked {
        let (target, most) = &mut targets[*at];
        target.asked_at = target.asked_at.max(bucket.asked_at);
        let wants = bucket.backorders.min(most.saturating_sub(target.kept + target.backorders));
        target.backorders += wants;
        let (party, rank, size) = (bucket.party, Rank::Backorder, bucket.need.want.bytes);
        pieces.push(Piece { target: *at, party, rank, size, wants, has: 0 });
    }
    // What is kept serves requests, too.
    let mut kept: Vec<u64> = targets.iter().map(|(target, _)| target.kept).collect();
    for (at, bucket) in asked {
        let (target, most) = &mut targets[at];
        let learnt = bucket.learnt(minute);
        let served = learnt.min(kept[at]);
        kept[at] -= served;
        let wants = (learnt - served).min(most.saturating_sub(target.all()));
        target.learnt += wants;
        let (party, rank, size) = (bucket.party, Rank::Learnt, bucket.need.want.bytes);
        pieces.push(Piece { target: at, party, rank, size, wants, has: 0 });
    }
    let all = |(target, _): (Target, u64)| Target { allotted: target.all(), ..target };
    (targets.into_iter().map(all).collect(), pieces)
}

/// A tenant that asks for more than it may hold wants no more of the stock than that.
fn within(quota: u64, pieces: &mut [&mut Piece], targets: &mut [Target]) {
    if pieces.iter().fold(0, |sum: u64, piece| sum.saturating_add(piece.bytes())) <= quota {
        return;
    }
    evenly(pieces, quota);
    for piece in pieces {
        let (target, over) = (&mut targets[piece.target], piece.wants - piece.has);
        match piece.rank {
            Rank::Backorder => target.backorders -= over,
            _ => target.learnt -= over,
        }
        target.allotted -= over;
        (piece.wants, piece.has) = (piece.has, 0);
    }
}

/// Gives each piece its part of `room` bytes.
fn evenly(pieces: &mut [&mut Piece], room: u64) {
    let mut tenants: BTreeMap<u16, BTreeMap<u32, u64>> = BTreeMap::new();
    for piece in pieces.iter() {
        let users = tenants.entry(piece.party.tenant).or_default();
        let all = users.entry(piece.party.uid).or_default();
        *all = all.saturating_add(piece.bytes());
    }
    let wants = |users: &BTreeMap<u32, u64>| {
        users.values().fold(0, |sum: u64, bytes| sum.saturating_add(*bytes))
    };
    let of_tenants = even(tenants.values().map(wants), room);
    let mut left = room;
    for (tenant, users) in &tenants {
        let of_users = even(users.values().copied(), wants(users).min(of_tenants));
        for (&uid, &bytes) in users {
            let party = Party { tenant: *tenant, uid };
            let mut room = bytes.min(of_users);
            for rank in [Rank::Backorder, Rank::Learnt] {
                let is_own = |piece: &&mut &mut Piece| (piece.party, piece.rank) == (party, rank);
                let mut own: Vec<_> = pieces.iter_mut().filter(is_own).collect();
                let fits = |count: u64| {
                    let bytes =
                        own.iter().map(|piece| piece.wants.min(count).saturating_mul(piece.size));
                    bytes.fold(0, u64::saturating_add) <= room
                };
                let count = largest(fits, own.iter().map(|piece| piece.wants).max().unwrap_or(0));
                for piece in &mut own {
                    piece.has = piece.wants.min(count);
                    room -= piece.has * piece.size;
                    left -= piece.has * piece.size;
                }
            }
        }
    }
    // What shares of whole inodes leave.
    for piece in pieces.iter_mut() {
        let more = (piece.wants - piece.has).min(left / piece.size);
        piece.has += more;
        left -= more * piece.size;
    }
}

/// The even share of so much room.
fn even(wants: impl Iterator<Item = u64>, room: u64) -> u64 {
    let mut wants: Vec<u64> = wants.collect();
    wants.sort_unstable();
    let (mut left, mut others) = (room, wants.len() as u64);
    for want in wants {
        if want > left / others {
            return left / others;
        }
        left -= want;
        others -= 1;
    }
    u64::MAX
}

/// The largest number up to `most` that fits; 0 does.
fn largest(fits: impl Fn(u64) -> bool, most: u64) -> u64 {
    let (mut low, mut high) = (0, most);
    while low < high {
        let middle = low + (high - low).div_ceil(2);
        match fits(middle) {
            true => low = middle,
            false => high = middle - 1,
        }
    }
    low
}
