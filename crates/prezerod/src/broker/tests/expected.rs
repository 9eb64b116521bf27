//! What an operator expects back lies ready when it comes, also for the next broker, and is said to be ready when it is.

use super::*;
use crate::broker::persist::Moment;
use crate::filler::Progress;
use crate::protocol::Drain;

const GIB: u64 = 1 << 30;
/// Bytes that a made-up filler makes in a second.
const PACE: u64 = 2 * GIB;
/// An estimate is right if it is at most this part too long or too short.
const RIGHT: f64 = 0.2;

fn expect(mib: u64, pieces: u32) -> Request {
    Request::Expect { want: want(mib), seconds: 3600, pieces }
}

fn room(settings: &mut Settings) {
    settings.limit = Some(32 * GIB);
}

/// The first size that is wanted: its target, what of it lies ready, and when all will.
fn wanted(rig: &mut Rig) -> (u64, u64, Option<f64>) {
    let root = rig.client(9, 0);
    let row = rig.report(root)["wanted"][0].clone();
    rig.broker.disconnect(root);
    let number = |name: &str| row[name].as_u64().unwrap_or(0);
    (number("target"), number("ready"), row["shortage"]["ready_in_seconds"].as_f64())
}

/// A filler's work for some time, in steps of 100 ms; returns when all that is wanted lies ready, s from now.
fn play(rig: &mut Rig, jobs: &mut Vec<(Job, u64)>, seconds: u64, pace: u64) -> Option<f64> {
    let began = rig.now;
    let mut ready = None;
    while rig.now - began < seconds * S {
        jobs.extend(rig.plan(Memory::Fine).jobs.into_iter().map(|job| (job, job.bytes)));
        rig.now += S / 10;
        for (job, left) in &mut *jobs {
            *left = left.saturating_sub(pace / 10);
            let (serial, left) = (job.serial, *left);
            rig.broker.progress(rig.now, Progress { serial, left, throttle: None, pace: None });
        }
        for (job, _) in jobs.extract_if(.., |(_, left)| *left == 0) {
            let wall_ns = rig.now - job.began;
            let outcome = Outcome::Made { cpu_ns: wall_ns, wall_ns };
            let done = Done { serial: job.serial, outcome };
            rig.broker.done(rig.now, done, Some(Fake::default()));
        }
        let (target, there, _) = wanted(rig);
        if target > 0 && there >= target {
            ready.get_or_insert((rig.now - began) as f64 / S as f64);
        }
    }
    ready
}

#[test]
fn an_estimate_holds_from_the_first_second_of_a_broker_that_never_made_a_piece() {
    for (mib, pieces, pace) in
        [(8 << 10, 1, PACE), (4 << 10, 2, PACE), (2 << 10, 3, PACE / 4), (24 << 10, 1, PACE * 3)]
    {
        let (mut rig, jobs) = (Rig::new(room), &mut vec![]);
        let root = rig.client(1, 0);
        assert_eq!(rig.answer(root, expect(mib, pieces)), Answer::Done);
        assert_eq!(play(&mut rig, jobs, 1, pace), None);
        let told = wanted(&mut rig).2.expect("a second is enough to know");
        let took = play(&mut rig, jobs, 60, pace).expect("it is made in a minute");
        let off = (told - took).abs() / took;
        assert!(off <= RIGHT, "{mib} MiB, {pieces}: {told} s told, {took} s taken");
        // A client that comes too early hears when the piece is ready that is being made.
        let user = rig.client(2, 1000);
        for _ in 0..pieces {
            assert!(rig.lease(user, mib, 0).unwrap().inode.is_some());
        }
        assert_eq!(rig.answer(root, expect(mib, 1)), Answer::Done);
        rig.now += S;
        assert_eq!(play(&mut rig, jobs, 1, pace), None);
        let Answer::When { estimate_ns, .. } = rig.lease(user, mib, 0).unwrap().answer else {
            panic!("one is ready")
        };
        let began = rig.now;
        while rig.broker.stock.iter().next().is_none() {
            play(&mut rig, jobs, 1, pace);
            assert!(rig.now < began + 60 * S);
        }
        let (told, took) = (estimate_ns as f64 / S as f64, (rig.now - began) as f64 / S as f64);
        assert!((told - took).abs() <= took * RIGHT + 1.0, "{told} s told, {took} s taken");
    }
}

#[test]
fn what_is_expected_lies_ready_until_it_is_leased_and_a_lease_is_one_piece_less() {
    let mut rig = Rig::new(room);
    let (root, user) = (rig.client(1, 0), rig.client(2, 1000));
    assert_eq!(rig.answer(root, expect(1024, 2)), Answer::Done);
    assert!(play(&mut rig, &mut vec![], 10, PACE).is_some());
    // Longer than what was learnt, and than a debt.
    rig.now += 1800 * S;
    rig.plan(Memory::Fine);
    assert_eq!(wanted(&mut rig).0, 2);
    assert_eq!(rig.broker.stock.iter().count(), 2);
    for left in [1, 0] {
        assert!(rig.lease(user, 1024, 0).unwrap().inode.is_some());
        assert_eq!(
            rig.broker.expected.keeps([].into_iter()).iter().map(|k| k.keep).sum::<u64>(),
            left
        );
    }
    // It is replaced, not added, and what the settings keep counts for it.
    for pieces in [3, 2, 0] {
        assert_eq!(rig.answer(root, expect(512, pieces)), Answer::Done);
        let kept = rig.broker.expected.keeps([].into_iter());
        assert_eq!(kept.iter().map(|keep| keep.keep).sum::<u64>(), u64::from(pieces));
    }
    assert_eq!(rig.answer(root, expect(512, 2)), Answer::Done);
    let kept = Keep { need: Need { want: want(512), payer: Payer::BROKER }, keep: 1, most: 9 };
    assert_eq!(rig.broker.expected.keeps([kept].into_iter())[0].keep, 1);
    // In vain.
    rig.now += 3601 * S;
    rig.plan(Memory::Fine);
    assert!(rig.broker.expected.keeps([].into_iter()).is_empty());
}

#[test]
fn only_an_operator_says_what_is_expected_and_bad_sizes_are_refused() {
    let mut rig = Rig::new(room);
    let own = rustix::process::getuid().as_raw();
    let user = rig.client(1, if own == 1000 { 1001 } else { 1000 });
    if !matches!(own, 0 | 1000) {
        return;
    }
    assert_eq!(reason(rig.ask(user, expect(4, 1))), Reason::Denied);
    let root = rig.client(2, 0);
    for (bytes, node) in [(0, None), (5, None), (1 << 50, None), (2 << 20, Some(9))] {
        let want = Want { bytes, page: Page::Huge, node };
        let refused = reason(rig.ask(root, Request::Expect { want, seconds: 9, pieces: 1 }));
        assert_eq!(refused, if node.is_some() { Reason::Node } else { Reason::Size });
    }
    assert_eq!(rig.answer(root, Request::Drain(Drain::On)), Answer::Done);
    assert_eq!(rig.answer(root, expect(4, 1)), Answer::Done, "the next broker, or the end of it");
}

#[test]
fn what_is_expected_survives_the_broker_and_its_time_goes_on() {
    let moment = |s: u64| Moment { boot: "b".into(), monotonic_ns: s * S, wall_ns: s * S };
    let mut rig = Rig::new(room);
    let root = rig.client(1, 0);
    let before = rig.broker.changes();
    assert_eq!(rig.answer(root, expect(1024, 2)), Answer::Done);
    assert_ne!(rig.broker.changes(), before, "it is saved at once");
    let text = serde_json::to_string(&rig.broker.saved(moment(0))).unwrap();
    let kept = |text: &str, s: u64| {
        let mut next = Rig::new(room);
        next.now = s * S;
        next.broker.restore(&moment(s), serde_json::from_str(text).unwrap(), |_| None);
        next.plan(Memory::Fine);
        wanted(&mut next).0
    };
    assert_eq!((kept(&text, 30), kept(&text, 3599), kept(&text, 3601)), (2, 2, 0));
    for (part, other) in [("\"pieces\":2", "\"pieces\":0"), ("\"bytes\":1073741824", "\"bytes\":3")]
    {
        assert!(text.contains(part), "{text}");
        assert_eq!(kept(&text.replace(part, other), 30), 0);
    }
    // What an earlier broker saved has no such list.
    let earlier = text.split(",\"expected\"").next().unwrap().to_owned() + "}";
    assert_eq!(kept(&earlier, 30), 0);
}
