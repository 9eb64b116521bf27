//! Debts on made-up numbers: which tenant is charged for what.

use super::*;
use crate::protocol::Page;

const MIB: u64 = 1 << 20;
const MS: u64 = 1_000_000;

fn exactly(mib: u64) -> Unaccounted {
    Unaccounted { least: mib * MIB, most: mib * MIB }
}

#[test]
fn what_stays_astray_after_a_lease_is_its_tenants_until_it_is_back() {
    for pages in [Pages::Memory, Pages::Pool(Page::Huge)] {
        let mut debts = Debts::default();
        let measured = |debts: &mut Debts, now, mib| {
            debts.measured(now, pages, exactly(mib), [].into_iter());
        };
        measured(&mut debts, 0, 7);
        debts.ended(MS, pages, "a", 32 * MIB);
        measured(&mut debts, MS, 7 + 20);
        assert_eq!((debts.of("a"), debts.of("b")), (20 * MIB, 0));
        assert_eq!(debts.owed_alone("a"), 0, "it may be over in a moment");
        debts.ended(2 * MS, pages, "b", 64 * MIB);
        measured(&mut debts, 2 * MS, 7 + 20);
        assert_eq!((debts.of("a"), debts.of("b")), (20 * MIB, 0), "all of that came back");
        measured(&mut debts, 3 * MS + GRACE_NS, 7 + 4);
        assert_eq!((debts.of("a"), debts.owed_alone("a")), (4 * MIB, 4 * MIB));
        measured(&mut debts, 4 * MS + GRACE_NS, 3);
        assert_eq!(debts.of("a"), 0);
        assert!(debts.tenants().is_empty());
    }
}

#[test]
fn however_often_a_tenant_pins_it_is_charged_for_all_that_is_pinned() {
    let mut debts = Debts::default();
    debts.measured(0, Pages::Memory, exactly(0), [].into_iter());
    for nth in 1..200 {
        let now = nth * LAG_NS;
        debts.ended(now, Pages::Memory, "other", 512 * MIB);
        debts.ended(now, Pages::Memory, "pins", 32 * MIB);
        debts.measured(now + MS, Pages::Memory, exactly(32 * nth), ["third"].into_iter());
        assert_eq!(debts.of("pins"), 32 * nth * MIB);
        assert_eq!(debts.of("third"), 0, "it gave nothing back");
        assert!(debts.of("other") <= 32 * nth * MIB, "no more than is pinned");
    }
}

#[test]
fn a_page_that_left_a_lease_that_lives_is_charged_when_the_lease_ends() {
    let mut debts = Debts::default();
    debts.measured(0, Pages::Memory, exactly(0), [].into_iter());
    debts.measured(MS, Pages::Memory, exactly(30), ["a", "b"].into_iter());
    assert_eq!(debts.of("a"), 0, "the lease itself counts");
    debts.ended(9 * LAG_NS, Pages::Memory, "a", 64 * MIB);
    debts.measured(9 * LAG_NS, Pages::Memory, exactly(30), ["b"].into_iter());
    assert_eq!((debts.of("a"), debts.of("b")), (30 * MIB, 0));
    assert_eq!(debts.owed_alone("a"), 0, "b may have them");
}

#[test]
fn what_another_tenant_has_back_pays_off_nothing_of_what_a_tenant_pins() {
    let mut debts = Debts::default();
    debts.measured(0, Pages::Memory, exactly(0), [].into_iter());
    debts.ended(MS, Pages::Memory, "pins", 64 * MIB);
    debts.measured(MS, Pages::Memory, exactly(64), [].into_iter());
    // Another tenant's I/O ends a moment after its lease, over and over.
    for nth in 2..20 {
        let now = nth * 2 * LAG_NS;
        debts.ended(now, Pages::Memory, "other", 8 * MIB);
        debts.measured(now, Pages::Memory, exactly(64 + 8), [].into_iter());
        debts.measured(now + MS, Pages::Memory, exactly(64), [].into_iter());
        assert_eq!(debts.of("pins"), 64 * MIB);
        assert!(debts.of("other") <= 64 * MIB, "no more than is pinned");
    }
    let now = 100 * LAG_NS;
    debts.measured(now, Pages::Memory, exactly(0), [].into_iter());
    assert!(debts.tenants().is_empty());
}

#[test]
fn pages_of_a_pool_that_a_stranger_may_have_refuse_nobody() {
    let pool = Pages::Pool(Page::Huge);
    for (others, refused) in [(None, 4 * MIB), (Some(OTHERS), 0)] {
        let mut debts = Debts::default();
        debts.measured(0, pool, exactly(0), others.into_iter());
        debts.measured(MS, pool, exactly(6), others.into_iter());
        assert_eq!(debts.all(), 0, "no lease ended");
        debts.ended(2 * MS, pool, "a", 8 * MIB);
        debts.measured(2 * MS, pool, exactly(6 + 4), others.into_iter());
        debts.measured(9 * LAG_NS, pool, exactly(6 + 4), others.into_iter());
        assert_eq!((debts.of("a"), debts.owed_alone("a")), (4 * MIB, refused));
        assert_eq!(debts.tenants().into_iter().collect::<Vec<_>>(), [("a", 4 * MIB)]);
        debts.measured(10 * LAG_NS, pool, exactly(6), others.into_iter());
        assert_eq!(debts.of("a"), 0);
    }
}

#[test]
fn leases_that_end_by_thousands_while_no_number_is_exact_are_remembered_in_a_few_words() {
    for pages in [Pages::Memory, Pages::Pool(Page::Huge)] {
        let mut debts = Debts::default();
        debts.measured(0, pages, exactly(0), [].into_iter());
        let unsure = Unaccounted { least: 0, most: 64 * MIB };
        for nth in 1..20_000 {
            debts.ended(nth * MS, pages, "churns", 2 * MIB);
            debts.measured(nth * MS, pages, unsure, [].into_iter());
        }
        let words = serde_json::to_string(&debts.saved()).unwrap();
        assert!(words.len() < 4096, "{} bytes", words.len());
        debts.measured(20_000 * MS, pages, exactly(32), [].into_iter());
        assert_eq!(debts.of("churns"), 32 * MIB, "{pages:?}");
    }
}

#[test]
fn less_than_a_huge_page_is_nothing_and_what_nobody_gave_back_is_nobodys() {
    let mut debts = Debts::default();
    debts.measured(0, Pages::Memory, exactly(0), [].into_iter());
    debts.ended(1, Pages::Memory, "a", 64 * MIB);
    debts.measured(1, Pages::Memory, exactly(1), [].into_iter());
    assert_eq!(debts.of("a"), 0);
    debts.measured(3 * LAG_NS, Pages::Memory, exactly(40), [].into_iter());
    debts.ended(4 * LAG_NS, Pages::Memory, "a", 64 * MIB);
    debts.measured(4 * LAG_NS, Pages::Memory, exactly(40), [].into_iter());
    assert_eq!(debts.of("a"), 0);
}

#[test]
fn while_inodes_are_made_of_a_pool_only_what_is_certain_counts() {
    let pool = Pages::Pool(Page::Huge);
    let mut debts = Debts::default();
    debts.measured(0, pool, exactly(0), [].into_iter());
    debts.ended(1, pool, "a", 32 * MIB);
    let unsure = Unaccounted { least: 0, most: 64 * MIB };
    debts.measured(1, pool, unsure, [].into_iter());
    assert_eq!(debts.of("a"), 0);
    debts.measured(9 * LAG_NS, pool, exactly(32), [].into_iter());
    assert_eq!(debts.of("a"), 32 * MIB, "it is remembered until then");
    debts.measured(10 * LAG_NS, pool, unsure, [].into_iter());
    assert_eq!(debts.of("a"), 32 * MIB, "an inode that is begun pays nothing off");
}
