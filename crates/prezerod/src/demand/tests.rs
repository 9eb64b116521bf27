//! What is learnt from which requests, and which tenant has which part of the room.

use super::*;
use crate::protocol::{Page, Want};
use crate::tenant::Payer;

const S: u64 = 1_000_000_000;
const HOUR: u64 = 3600 * S;
const WINDOW: u64 = 75 * 60 * S;
const GIB: u64 = 1 << 30;
/// Bytes a second.
const PACE: u64 = 8 * GIB;

const PAGES: (Backing, Page) = (Backing::Thp, Page::Huge);
const A: Party = Party { tenant: 0, uid: 1 };
const B: Party = Party { tenant: 1, uid: 2 };

fn want(mib: u64) -> Need {
    let want = Want { bytes: mib << 20, page: Page::Huge, node: Some(0) };
    Need { want, payer: Payer::BROKER }
}

fn demand() -> Demand {
    Demand::new(0, WINDOW)
}

/// All targets where `limit_mib` MiB fit, by MiB of one inode: wanted and allotted.
fn targets(demand: &Demand, limit_mib: u64) -> Vec<(u64, u64, u64)> {
    let all = demand.targets(|_| Some((PAGES, limit_mib << 20)));
    let mut all: Vec<_> =
        all.iter().map(|it| (it.need.want.bytes >> 20, it.all(), it.allotted)).collect();
    all.sort_unstable();
    all
}

/// How many of this size should lie ready.
fn target(demand: &Demand, mib: u64) -> u64 {
    targets(demand, 1 << 30).iter().find(|it| it.0 == mib).map_or(0, |it| it.1)
}

#[test]
fn nothing_is_kept_that_nobody_asked_for() {
    let mut demand = demand();
    demand.turn(HOUR, 0);
    assert!(targets(&demand, 1 << 30).is_empty() && !demand.is_any());
}

#[test]
fn what_had_to_lie_ready_is_what_came_faster_than_it_is_refilled() {
    for (gap_ms, expected) in [(0, 8), (125, 5), (500, 1), (3000, 1)] {
        let mut demand = demand();
        // 2 GiB each, of which the bucket loses one in half a second.
        (0..8).for_each(|nth| demand.asked(nth * gap_ms * S / 1000, A, &want(2048), PACE));
        demand.turn(20 * S, 0);
        let most = expected + u64::from(gap_ms == 125) * 2;
        assert!((expected..=most).contains(&target(&demand, 2048)), "{gap_ms} ms");
    }
}

#[test]
fn where_no_pace_is_known_all_of_half_a_minute_counts() {
    let mut demand = demand();
    (0..100).for_each(|nth| demand.asked(nth * 3 * S, A, &want(2048), 0));
    assert!((9..=10).contains(&target(&demand, 2048)), "{}", target(&demand, 2048));
}

#[test]
fn a_client_that_asks_for_page_after_page_fills_no_host() {
    let mut demand = demand();
    // As fast as it can.
    (0..60_000).for_each(|nth| demand.asked(nth * S / 1000, A, &want(2), PACE));
    assert!(target(&demand, 2) <= 2, "{}", target(&demand, 2));
}

#[test]
fn what_is_no_longer_asked_for_is_forgotten_with_its_window() {
    let mut demand = demand();
    (0..4).for_each(|_| demand.asked(0, A, &want(64), PACE));
    demand.turn(WINDOW - 6 * 60 * S, 0);
    assert_eq!(target(&demand, 64), 4);
    demand.turn(WINDOW + S, 0);
    assert_eq!(target(&demand, 64), 0);
    assert!(!demand.is_any());
}

#[test]
fn a_wish_is_floor_and_ceiling_and_can_be_withdrawn() {
    let mut demand = demand();
    demand.set_keeps(WINDOW, &[Keep { need: want(2), keep: 1, most: 2 }]);
    assert_eq!(target(&demand, 2), 1);
    (0..9).for_each(|_| demand.asked(0, A, &want(2), PACE));
    assert_eq!(target(&demand, 2), 2);
    demand.backorder(0, A, &want(2));
    assert_eq!(target(&demand, 2), 2, "what is owed keeps to the ceiling, too");
    demand.set_keeps(WINDOW, &[]);
    assert_eq!(target(&demand, 2), 10);
}

#[test]
fn what_a_client_was_told_to_come_back_for_is_made_but_not_for_ever() {
    let mut demand = demand();
    demand.asked(0, A, &want(64), PACE);
    demand.backorder(0, A, &want(64));
    assert_eq!(target(&demand, 64), 2, "for that client and for the next");
    demand.asked(S, A, &want(64), PACE);
    assert_eq!(target(&demand, 64), 1);
    demand.backorder(S, A, &want(64));
    assert!(demand.has_backorder(&want(64)));
    demand.turn(2 * S + bucket::BACKORDER_NS, 0);
    assert!(!demand.has_backorder(&want(64)));
    assert_eq!(target(&demand, 64), 1);
}

#[test]
fn a_client_that_asks_again_and_again_is_one_client() {
    let mut demand = demand();
    for poll in 0..1000 {
        demand.asked(poll * S / 100, A, &want(64), 0);
        demand.backorder(poll * S / 100, A, &want(64));
    }
    demand.asked(10 * S, A, &want(64), 0);
    assert_eq!(target(&demand, 64), 1);
}

#[test]
fn all_sizes_of_one_user_drive_out_no_wish_and_no_size_of_another() {
    let mut demand = demand();
    demand.set_keeps(WINDOW, &[Keep { need: want(2), keep: 1, most: 2 }]);
    demand.asked(0, B, &want(4), PACE);
    for size in 3..1000 {
        demand.asked(size, A, &want(2 * size), PACE);
    }
    assert_eq!(targets(&demand, 1 << 30).len(), MOST_BUCKETS + 1);
    assert_eq!((target(&demand, 2), target(&demand, 4)), (1, 1));
    assert_eq!(target(&demand, 1998), 1, "the last one counts");
}

#[test]
fn what_an_hour_used_to_ask_for_lies_ready_before_it_and_only_then() {
    const MINUTE: u64 = 60 * S;
    let mut demand = Demand::new(0, HOUR);
    let minutes = 5 * u64::from(DAY);
    let mut seen = vec![];
    for at in 0..minutes {
        let (day, minute) = (at / u64::from(DAY), (at % u64::from(DAY)) as u16);
        // Each day but the last, at 9:05, four at once.
        if minute == 9 * 60 + 5 && day < 4 {
            (0..4).for_each(|_| demand.asked(at * MINUTE, A, &want(64), PACE));
        }
        demand.turn(at * MINUTE, minute);
        if [8 * 60, 8 * 60 + 50, 9 * 60 + 4, 9 * 60 + 6, 20 * 60].contains(&minute) {
            seen.push(target(&demand, 64));
        }
    }
    let days: Vec<_> = seen.chunks(5).collect();
    // 8:00, 8:50, 9:04, after the burst, evening.
    assert_eq!(days[0], [0, 0, 0, 4, 0], "nothing is known on the first day");
    assert_eq!(days[1], [0, 2, 2, 4, 0]);
    assert_eq!(days[2], [0, 3, 3, 4, 0]);
    assert_eq!(days[3], [0, 4, 4, 4, 0]);
    assert_eq!(days[4], [0, 4, 4, 4, 0], "nobody came");
    for at in minutes..minutes + 4 * u64::from(DAY) {
        demand.turn(at * MINUTE, (at % u64::from(DAY)) as u16);
        assert!(demand.next_turn(at * MINUTE) > at * MINUTE);
    }
    demand.turn(minutes * MINUTE, 8 * 60 + 55);
    assert_eq!(target(&demand, 64), 0, "nobody came for four days more");
}

#[test]
fn where_not_all_fits_what_is_kept_comes_first_then_what_is_owed() {
    let mut demand = demand();
    demand.set_keeps(WINDOW, &[Keep { need: want(64), keep: 2, most: 9 }]);
    (0..100).for_each(|_| demand.asked(0, A, &want(2), 0));
    demand.backorder(0, B, &want(32));
    assert_eq!(targets(&demand, 1024), [(2, 103, 103), (32, 1, 1), (64, 2, 2)]);
    // Of 100 at once the largest eighth is not told apart.
    assert_eq!(targets(&demand, 192), [(2, 103, 16), (32, 1, 1), (64, 2, 2)]);
    // Half of what is left is no 32 MiB.
    assert_eq!(targets(&demand, 170), [(2, 103, 21), (32, 1, 0), (64, 2, 2)]);
    assert_eq!(targets(&demand, 100), [(2, 103, 18), (32, 1, 0), (64, 2, 1)]);
}

#[test]
fn tenants_share_what_is_left_evenly_and_what_one_does_not_need_the_other_has() {
    let mut demand = demand();
    (0..100).for_each(|_| demand.asked(0, A, &want(16), 0));
    (0..100).for_each(|_| demand.asked(0, Party { uid: 9, ..A }, &want(8), 0));
    (0..10).for_each(|_| demand.asked(0, B, &want(64), 0));
    // Half of it for each tenant, a quarter for each user of the first.
    assert_eq!(targets(&demand, 512), [(8, 103, 16), (16, 103, 8), (64, 10, 4)]);
    // The second tenant wants 640 MiB, not a half of 1600.
    assert_eq!(targets(&demand, 1600), [(8, 103, 60), (16, 103, 30), (64, 10, 10)]);
}

/// Requests cost nothing, and need no wait.
#[test]
fn what_is_made_for_a_tenant_is_no_more_than_it_may_hold_and_its_users_share_that() {
    let mut demand = demand();
    (0..100).for_each(|_| demand.asked(0, A, &want(16), 0));
    (0..5).for_each(|_| demand.asked(0, Party { uid: 9, ..A }, &want(8), 0));
    (0..10).for_each(|_| demand.asked(0, B, &want(64), 0));
    demand.set_quotas([(A.tenant, 64 << 20)].into());
    assert_eq!(targets(&demand, 1 << 30), [(8, 4, 4), (16, 2, 2), (64, 10, 10)]);
    // The even share is half of it.
    assert_eq!(targets(&demand, 700), [(8, 4, 4), (16, 2, 2), (64, 10, 9)]);
    demand.set_quotas([(A.tenant, 0)].into());
    assert_eq!(targets(&demand, 1 << 30), [(8, 0, 0), (16, 0, 0), (64, 10, 10)]);
}

#[test]
fn two_users_of_one_size_share_its_stock_and_what_is_kept() {
    let mut demand = demand();
    demand.set_keeps(WINDOW, &[Keep { need: want(64), keep: 3, most: 9 }]);
    (0..2).for_each(|_| demand.asked(0, A, &want(64), PACE));
    (0..2).for_each(|_| demand.asked(0, B, &want(64), PACE));
    assert_eq!(targets(&demand, 1 << 30), [(64, 4, 4)]);
}

#[test]
fn each_size_of_a_user_comes_once_before_another_comes_twice() {
    let mut demand = demand();
    for mib in [64, 32, 2] {
        (0..50).for_each(|_| demand.asked(0, A, &want(mib), 0));
    }
    assert_eq!(targets(&demand, 100), [(2, 51, 2), (32, 51, 1), (64, 51, 1)]);
    let all = demand.targets(|_| Some((PAGES, 300 << 20)));
    let have = |need: &Need| u64::from(need.want.bytes == 64 << 20);
    let order = in_order(&all, have);
    assert_eq!(order.len(), 3);
    assert_eq!(order[2].0.need, want(64), "one of it is there already");
}

#[test]
fn what_cannot_be_made_takes_no_room() {
    let mut demand = demand();
    demand.set_keeps(WINDOW, &[64, 32].map(|mib| Keep { need: want(mib), keep: 1, most: 9 }));
    let all = demand.targets(|need| (need.want.bytes < 64 << 20).then_some((PAGES, 32 << 20)));
    assert_eq!(all.iter().map(|target| target.allotted).collect::<Vec<_>>(), [1, 1]);
}

#[test]
fn a_request_that_is_withdrawn_leaves_nothing_of_itself() {
    let mut demand = demand();
    let mut samples = vec![];
    for nth in 0..5 {
        samples.push(demand.sample(nth * S, A, &want(2048), 0).unwrap());
    }
    assert_eq!(target(&demand, 2048), 5);
    // A part of the window passes before the client goes.
    demand.turn(WINDOW / 10, 0);
    samples.into_iter().rev().for_each(|sample| demand.withdraw(A, &want(2048), sample));
    assert!(!demand.is_any(), "{:?}", targets(&demand, 1 << 30));
    demand.turn(WINDOW, 60);
    demand.turn(2 * WINDOW, 120);
    assert!(targets(&demand, 1 << 30).is_empty(), "no hour of the day has it");
}

#[test]
fn one_of_two_wishes_stays() {
    let mut demand = demand();
    demand.asked(0, A, &want(2048), 0);
    let second = demand.sample(S, A, &want(2048), 0).unwrap();
    demand.withdraw(A, &want(2048), second);
    assert_eq!(target(&demand, 2048), 1);
    demand.withdraw(B, &want(2048), second);
    assert_eq!(target(&demand, 2048), 1, "another party's");
}

#[test]
fn a_crowd_of_users_drives_out_no_size_that_is_asked_for_more_often() {
    let mut demand = demand();
    for nth in 0..5 {
        for mib in [2, 4, 6] {
            demand.asked(nth, A, &want(mib), PACE);
        }
    }
    for uid in 10..300 {
        let one = Party { tenant: A.tenant, uid };
        demand.asked(100 + u64::from(uid), one, &want(8), PACE);
        // And a user that asks for one size after the other.
        demand.asked(100, Party { tenant: A.tenant, uid: 9 }, &want(2 * u64::from(uid)), PACE);
    }
    assert!(
        [2, 4, 6].iter().all(|mib| target(&demand, *mib) >= 5),
        "{:?}",
        targets(&demand, 1 << 30)
    );
    // Nor do a tenant's users drive out another tenant's.
    demand.asked(500, B, &want(10), PACE);
    for uid in 1000..1300 {
        let other = Party { tenant: A.tenant, uid };
        (0..9).for_each(|_| demand.asked(600, other, &want(12), PACE));
    }
    assert!(demand.buckets.iter().any(|bucket| bucket.party == B));
}

#[test]
fn backorders_stay_within_an_even_share_and_what_their_tenant_may_hold() {
    let mut demand = demand();
    (0..6).for_each(|_| demand.asked(0, B, &want(128), 0));
    // Without a limit to their number, of all sizes and users.
    for uid in 0..16 {
        for size in 1..=31 {
            (0..8).for_each(|_| demand.backorder(S, Party { uid, ..A }, &want(2 * size)));
        }
    }
    let of_victim = |demand: &Demand| targets(demand, 768).iter().find(|it| it.0 == 128).unwrap().2;
    assert_eq!(of_victim(&demand), 3, "half of it");

    for may_hold in [64, 7, 0] {
        demand
            .bound_backorders(|tenant| if tenant == A.tenant { may_hold << 20 } else { u64::MAX });
        let owed: u64 = demand.buckets.iter().map(|one| one.backorders * one.need.want.bytes).sum();
        assert!(owed <= may_hold << 20, "{owed} of {may_hold} MiB");
    }
    assert_eq!(of_victim(&demand), 6);
}
