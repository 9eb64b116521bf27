//! Clients with memory of their own: they wait for what is nearly made, and for no longer than that beats their own.

use super::*;
use crate::filler::Progress;
use crate::filler::pacer::{BusyLimit, Throttle};

/// A broker that keeps one of 8 MiB, makes 8 MiB a second, and makes the next one after a lease.
fn making() -> (Rig, ClientId, Job) {
    let mut rig = Rig::new(|settings| {
        settings.stock = vec![Stocked { want: want(8), tenant: None, keep: 1, most: 1 }];
    });
    let job = rig.plan(Memory::Fine).jobs.remove(0);
    rig.now += S;
    rig.made(&job);
    let client = rig.client(1, 1000);
    assert!(matches!(or_plain(&mut rig, client, 1000), Some(Answer::Lease(_))), "it lies ready");
    rig.now += S;
    let job = rig.plan(Memory::Fine).jobs.remove(0);
    (rig, client, job)
}

fn or_plain(rig: &mut Rig, client: ClientId, wait_ms: u32) -> Option<Answer> {
    let out = rig.ask(client, Request::LeaseOrPlain { want: want(8), wait_ms });
    out.map(|out| out.answer)
}

fn tell(rig: &mut Rig, job: &Job, left: u64, throttle: Option<Throttle>, pace: Option<u64>) {
    let progress = Progress { serial: job.serial, left: left * MIB, throttle, pace };
    rig.broker.progress(rig.now, progress);
}

fn is_plain(answer: Option<Answer>) -> bool {
    let Some(Answer::When { reason: Reason::Empty, text, .. }) = answer else { return false };
    text == "no lease of 8M ready; one made to order comes no sooner than plain memory"
}

#[test]
fn nothing_is_made_to_order_for_it_and_it_is_learnt_from_but_not_expected_back() {
    let mut rig = Rig::new(|_| {});
    let client = rig.client(1, 1000);
    assert!(is_plain(or_plain(&mut rig, client, 60_000)), "the pace is not known");
    assert!(
        !rig.broker.planner.demand.has_backorder(&Need { want: want(8), payer: Payer::BROKER })
    );
    // It starts undisturbed. Then stock is made at the pace of stock.
    assert!(rig.plan(Memory::Fine).jobs.is_empty());
    rig.now += S;
    let jobs = rig.plan(Memory::Fine).jobs;
    let [job] = &jobs[..] else { panic!("{jobs:?}") };
    assert_eq!((job.priority, job.busy_limit), (Priority::Idle, Some(BusyLimit::Cpu(5))));
    assert_eq!((rig.broker.counters.misses, rig.broker.counters.hits), (1, 0));
}

#[test]
fn it_waits_for_a_piece_that_is_nearly_made() {
    let (mut rig, client, job) = making();
    let other = rig.client(2, 1000);
    for (left, throttle, pace, waits) in [
        // A quarter of a second is what it may take.
        (8, None, None, false),
        (3, None, None, false),
        (2, None, None, true),
        (2, Some(Throttle::Neighbours), Some(MIB), true),
        (1, Some(Throttle::Rate), Some(MIB), false),
        (1, Some(Throttle::Rate), Some(4 * MIB), true),
        (1, Some(Throttle::Cpu), None, false),
    ] {
        tell(&mut rig, &job, left, throttle, pace);
        let answer = or_plain(&mut rig, client, 60_000);
        assert_eq!(answer.is_none(), waits, "{left} MiB left, {throttle:?}: {answer:?}");
        if waits {
            let plan = rig.plan(Memory::Fine);
            assert!(plan.jobs.is_empty(), "{plan:?}");
            assert!(is_plain(or_plain(&mut rig, other, 60_000)), "another has it");
            rig.broker.withdraw(client);
        }
    }
    tell(&mut rig, &job, 1, None, None);
    assert_eq!(or_plain(&mut rig, client, 60_000), None);
    rig.now += S / 8;
    rig.made(&job);
    let served = rig.broker.serve(rig.now);
    let Answer::Lease(granted) = &served[0].answer else { panic!("{served:?}") };
    assert_eq!(granted.waited_ns, S / 8);
}

#[test]
fn a_piece_that_comes_late_is_given_up_at_the_deadline() {
    for (wait_ms, patience) in [(60_000, S / 4), (100, S / 10)] {
        let (mut rig, client, job) = making();
        tell(&mut rig, &job, 1, None, None);
        assert_eq!(or_plain(&mut rig, client, wait_ms), None);
        let deadline = rig.now + patience;
        assert_eq!(rig.broker.deadline(), Some(deadline));
        // The filler lost its CPU.
        for now in [rig.now, deadline - 1] {
            rig.now = now;
            assert!(rig.broker.serve(now).is_empty());
            assert!(rig.plan(Memory::Fine).jobs.is_empty(), "nothing is made to order");
        }
        let mut outs = rig.broker.serve(deadline);
        assert!(outs.len() == 1 && is_plain(outs.pop().map(|out| out.answer)));
        assert!(rig.broker.planner.waits.is_empty());
    }
}

#[test]
fn without_a_wait_it_gets_what_lies_ready_or_nothing() {
    let (mut rig, client, job) = making();
    tell(&mut rig, &job, 1, None, None);
    assert!(is_plain(or_plain(&mut rig, client, 0)));
    rig.made(&job);
    assert!(matches!(or_plain(&mut rig, client, 0), Some(Answer::Lease(_))));
}
