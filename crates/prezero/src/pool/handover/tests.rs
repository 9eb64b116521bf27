use super::*;

#[test]
fn an_unanswered_request_takes_the_block_with_its_progress() {
    let claim = Claim::new();
    let session = claim.begin(Span::new(PageId(8), 4), Work::Scrub, 6);
    session.progress().store(3, Release);

    let Answer::Seized(seized) = claim.seize(|| true) else { panic!("not answered: taken") };

    assert_eq!(seized.block, Claimed { first: PageId(8), pages: 4, done: 3, mark: 6 });
    assert_eq!(session.close(), None);
    seized.release();
    assert!(claim.is_free());
}

#[test]
fn fixed_work_is_never_taken() {
    let claim = Claim::new();
    let session = claim.begin(Span::new(PageId(0), 1), Work::Fixed, 0);

    assert!(matches!(claim.seize(|| true), Answer::Kept));

    assert!(session.close().is_some());
    session.release();
    assert!(matches!(claim.seize(|| true), Answer::Released), "nothing is held");
}

#[test]
fn a_search_can_tell_that_a_block_came_or_went_meanwhile() {
    let claim = Claim::new();
    let before = claim.moment();
    let session = claim.begin(Span::new(PageId(0), 1), Work::Scrub, 0);
    let during = claim.moment();
    assert!(session.close().is_some());
    session.release();

    let after = claim.moment();

    assert!(before != during && during != after && before != after);
    assert_eq!(after, claim.moment());
}

#[test]
fn an_announced_claim_is_awaited_until_it_is_there() {
    let claim = Claim::new();
    assert!(!claim.awaits(), "nothing was");
    claim.announce();
    assert!(!claim.awaits(), "scrubd is absent");
    std::thread::scope(|scope| {
        scope.spawn(|| claim.begin(Span::new(PageId(0), 1), Work::Scrub, 0).busy());
        while !claim.awaits() && !claim.is_held() {}
    });
    assert!(!claim.awaits(), "it is there");
}

#[test]
fn a_late_piece_of_an_old_claim_does_not_match_a_new_one() {
    let claim = Claim::new();
    let first = claim.begin(Span::new(PageId(0), 1), Work::Scrub, 0).busy();
    let Answer::Seized(seized) = claim.seize(|| true) else { panic!("not answered: taken") };
    seized.release();

    let second = claim.begin(Span::new(PageId(0), 1), Work::Scrub, 0);

    assert_ne!(first, second.busy());
}
