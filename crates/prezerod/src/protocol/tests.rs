//! Frames survive the wire, and nothing else is taken for one.

use super::*;
use proptest::prelude::*;

fn any_want() -> impl Strategy<Value = Want> {
    let page = prop_oneof![Just(Page::Huge), Just(Page::Giant)];
    (any::<u64>(), page, any::<Option<u16>>()).prop_map(|(bytes, page, node)| Want {
        bytes,
        page,
        node,
    })
}

fn any_request() -> impl Strategy<Value = Request> {
    prop_oneof![
        (any_want(), any::<u32>()).prop_map(|(want, wait_ms)| Request::Lease { want, wait_ms }),
        (any_want(), any::<u32>())
            .prop_map(|(want, wait_ms)| Request::LeaseOrPlain { want, wait_ms }),
        (any_want(), any::<u32>(), "[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}").prop_map(
            |(want, wait_ms, name)| Request::LeaseNamed {
                want,
                wait_ms,
                name: Name::new(&name).unwrap()
            }
        ),
        any_want().prop_map(|w| Request::Available { page: w.page, node: w.node }),
        (any::<bool>(), any::<u64>()).prop_map(|(stock, from)| {
            let report = if stock { Report::Stock } else { Report::Metrics };
            Request::Report { report, from }
        }),
        any_want().prop_map(|w| Request::Yield { page: w.page, bytes: w.bytes }),
        prop_oneof![Just(Drain::Off), Just(Drain::On)].prop_map(Request::Drain),
        (any_want(), any::<u32>(), any::<u32>())
            .prop_map(|(want, seconds, pieces)| Request::Expect { want, seconds, pieces }),
    ]
}

fn any_answer() -> impl Strategy<Value = Answer> {
    let reason = || proptest::sample::select(Reason::ALL.to_vec());
    let granted = (any_want(), any::<[u64; 5]>(), any::<u16>(), 0..6usize).prop_map(
        |(want, [lease, inode, age_ns, cost_ns, waited_ns], node, form)| {
            let backing = Backing::ALL[form % 3];
            let charged = if form < 3 { Charged::Broker } else { Charged::Tenant };
            let Want { bytes, page, .. } = want;
            Answer::Lease(Granted {
                lease,
                bytes,
                page,
                node,
                backing,
                inode,
                age_ns,
                cost_ns,
                waited_ns,
                charged,
            })
        },
    );
    prop_oneof![
        granted,
        (any_want(), any::<[u64; 3]>(), 0..6usize, "/\\PC{0,60}").prop_map(
            |(want, [inode, age_ns, waited_ns], form, path)| {
                let backing = Backing::ALL[form % 3];
                let since = if form < 3 { Since::Now } else { Since::Before };
                let Want { bytes, page, .. } = want;
                let lease = NamedLease { bytes, page, backing, inode, age_ns, waited_ns, since };
                Answer::Named { lease, path }
            }
        ),
        (reason(), "\\PC{0,120}").prop_map(|(reason, text)| Answer::No(reason, text)),
        (any::<u64>(), reason(), "\\PC{0,120}")
            .prop_map(|(estimate_ns, reason, text)| { Answer::When { estimate_ns, reason, text } }),
        any::<[u64; 5]>().prop_map(|[ready, largest, making, pace, quota_left]| {
            Answer::Available(Available { ready, largest, making, pace, quota_left })
        }),
        (any::<u64>(), "\\PC{0,120}").prop_map(|(next, text)| Answer::Part { next, text }),
        Just(Answer::Done),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(10_000))]

    #[test]
    fn a_request_reads_back_the_same(request in any_request(), tag: u32) {
        let frame = request.encode(tag);
        prop_assert!(frame.len() <= MAX_REQUEST);
        prop_assert_eq!(Request::decode(&frame), Ok((tag, request)));
    }

    #[test]
    fn an_answer_reads_back_the_same(answer in any_answer(), tag: u32) {
        let frame = answer.encode(tag);
        prop_assert!(frame.len() <= MAX_ANSWER);
        prop_assert_eq!(Answer::decode(&frame), Ok((tag, answer)));
    }

    /// Whatever is read from a mutilated frame is what would be written again: no byte of a
    /// packet is ignored.
    #[test]
    fn a_mutilated_frame_is_refused_or_means_what_it_says(
        request in any_request(), tag: u32, at in 0..128usize, byte: u8, cut in 0..129usize,
    ) {
        let mut frame = request.encode(tag);
        let len = frame.len();
        frame[at % len] = byte;
        frame.truncate(cut);
        if let Ok((tag, request)) = Request::decode(&frame) {
            prop_assert_eq!(request.encode(tag), frame);
        }
    }

    #[test]
    fn noise_is_no_frame_and_harms_nobody(frame in proptest::collection::vec(any::<u8>(), 0..600)) {
        if let Ok((tag, request)) = Request::decode(&frame) {
            prop_assert_eq!(request.encode(tag), frame.clone());
        }
        if let Ok((tag, answer)) = Answer::decode(&frame) {
            prop_assert_eq!(answer.encode(tag), frame);
        }
    }
}

#[test]
fn text_that_is_too_long_is_cut_at_a_character() {
    let frame = Answer::No(Reason::Host, "é".repeat(MAX_ANSWER)).encode(7);
    assert!(frame.len() <= 512);
    let (_, answer) = Answer::decode(&frame).unwrap();
    assert!(matches!(answer, Answer::No(Reason::Host, text) if text.chars().all(|c| c == 'é')));
    let part = Answer::Part { next: 1, text: "é".repeat(MAX_ANSWER) }.encode(7);
    assert!((MAX_ANSWER - 1..=MAX_ANSWER).contains(&part.len()), "{}", part.len());
    assert!(Answer::decode(&part).is_ok());
}

#[test]
fn what_is_wrong_is_said() {
    let good = Request::Drain(Drain::On).encode(2);
    let with = |at: usize, byte: u8| {
        let mut frame = good.clone();
        frame[at] = byte;
        Request::decode(&frame).unwrap_err()
    };
    assert_eq!(with(0, b'Q'), Malformed::Magic);
    assert_eq!(with(2, 2), Malformed::Version(2));
    assert_eq!(with(3, 99), Malformed::Kind(99));
    assert_eq!(Request::decode(&good[..11]), Err(Malformed::Length(11)));
    assert_eq!(Request::decode(&[]), Err(Malformed::Length(0)));
    let mut long = good.clone();
    long.push(0);
    assert_eq!(Request::decode(&long), Err(Malformed::Length(13)));
}

#[test]
fn a_name_is_no_path() {
    for name in
        ["", ".", "..", ".a", "-a", "--", "a/b", "/a", "a b", "a\0", "é", &"a".repeat(MAX_NAME + 1)]
    {
        assert_eq!(Name::new(name), None, "{name:?}");
    }
    let longest = "a".repeat(MAX_NAME);
    for name in ["a", "a..b", "0", "claim_1-x.y", &longest] {
        assert_eq!(Name::new(name).unwrap().as_str(), name);
    }
}

/// The bytes that `PROTOCOL.md` gives as an example are what this file writes.
#[test]
fn the_document_shows_the_frames_as_they_are() {
    let document = include_str!("../../PROTOCOL.md");
    let hex = |frame: Vec<u8>| {
        frame.iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().join(" ")
    };
    let want = Want { bytes: 1 << 30, page: Page::Huge, node: None };
    assert!(document.contains(&hex(Request::Lease { want, wait_ms: 500 }.encode(7))));
    assert!(
        document.contains(&hex(Request::Available { page: Page::Huge, node: Some(0) }.encode(8)))
    );
    for backing in Backing::ALL {
        assert!(document.contains(&format!("{} {}", backing as u32, backing.name())));
    }
    for reason in Reason::ALL {
        assert!(document.contains(&format!("| {} | {} |", reason as u32, reason.name())));
    }
}
