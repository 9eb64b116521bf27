//! Demand recorded from real programs by `bench/record.c`, which says what a line means:
//! 30 frames of `bench/demo.py`, a dozen rounds of filters from `scipy`, 200 of `node`'s
//! `Uint8Array` and `Buffer.alloc`, GCC's `cc1` on a C file of 600 lines, the first five rounds of
//! sparse matrices that `SciPy` makes dense, records that pandas joins and groups, 0.4 s of `bench/programs/ablate.c handler`,
//! 14 images that Pillow makes smaller, blurs and writes, and eight groupings of 400,000 rows in `DuckDB`.

use std::collections::HashMap;

use super::{Act, CLEAR_NS, MIB, MS, Model, Outcome, US};

/// The acts of a recording.
fn acts(text: &str) -> Vec<Act> {
    let mut blocks = HashMap::new();
    let mut acts = Vec::new();
    let mut now = 0;
    for line in text.lines() {
        let fields: Vec<&str> = line.split(' ').collect();
        let [at, what, pages, id] = fields[..] else { panic!("{line}: four fields") };
        let (at, pages): (u64, u64) = (at.parse().unwrap(), pages.parse().unwrap());
        acts.push(Act::Pass((at - now) * US));
        now = at;
        acts.push(match what {
            "z" => Act::Zero(pages),
            "p" => Act::Plain(pages),
            "f" if blocks.remove(id) == Some("z") => Act::FreeZero(pages),
            "f" => Act::FreePlain(pages),
            _ => panic!("{line}: z, p or f"),
        });
        if what != "f" {
            blocks.insert(id, what);
        }
    }
    acts
}

/// The outcome of the recording, and of the same once more after it.
fn twice(text: &str) -> (Outcome, Outcome) {
    let mut model = Model::new();
    let acts = acts(text);
    (model.play(acts.iter().copied()), model.play(acts))
}

#[test]
fn frames_of_a_numpy_program_find_their_stock() {
    let (first, then) = twice(include_str!("numpy.txt"));
    assert!(first.hit_share() > 0.8, "{first:?}");
    assert!(then.hit_share() > 0.95 && then.waste() <= 0.05, "{then:?}");
}

/// Zero and plain requests of the same sizes take turns, mostly without a pause. Half of what is made goes to plain
/// requests, and that is a fraction of what idle time may cost.
#[test]
fn filters_that_want_the_same_blocks_as_they_are_find_their_zeroes_all_the_same() {
    let (first, then) = twice(include_str!("scipy.txt"));
    for outcome in [first, then] {
        assert!(outcome.hit_share() > 0.8 && outcome.waste() < 0.55, "{outcome:?}");
    }
}

#[test]
fn most_of_what_is_made_for_node_is_used() {
    let (_, then) = twice(include_str!("node.txt"));
    assert!(then.hit_share() > 0.2 && then.waste() < 0.25, "{then:?}");
}

/// Each of four arrays replaces its predecessor; the memory free meanwhile is as large as the
/// largest.
#[test]
fn arrays_that_replace_each_other_find_half_of_what_they_ask_for() {
    let (first, then) = twice(include_str!("sparse.txt"));
    for outcome in [first, then] {
        assert!(outcome.hit_share() > 0.5 && outcome.waste() < 0.05, "{outcome:?}");
    }
}

/// It asks for 32 zero pages. Its plain blocks come back again and again.
#[test]
fn a_compiler_that_asks_for_zero_once_costs_next_to_nothing() {
    let (first, then) = twice(include_str!("cc1.txt"));
    assert!(first.spent_ns <= 100 * US && then.spent_ns <= 100 * US, "{first:?} {then:?}");
}

/// All recordings, by name.
const RECORDINGS: [(&str, &str); 9] = [
    ("numpy", include_str!("numpy.txt")),
    ("scipy", include_str!("scipy.txt")),
    ("sparse", include_str!("sparse.txt")),
    ("pandas", include_str!("pandas.txt")),
    ("node", include_str!("node.txt")),
    ("cc1", include_str!("cc1.txt")),
    ("handler", include_str!("handler.txt")),
    ("images", include_str!("images.txt")),
    ("duckdb", include_str!("duckdb.txt")),
];

/// What the policy makes of each, played once and again.
fn table() -> String {
    let mut table = String::from(
        "| recording | asked, MiB | hits, % | made, MiB | to plain, % of made | scrubd, ms | spared, ms |\n\
         |---|---|---|---|---|---|---|\n",
    );
    for (name, text) in RECORDINGS {
        let (first, then) = twice(text);
        for (turn, o) in [("", first), (", again", then)] {
            let mib = |pages: u64| pages as f64 / MIB as f64;
            let plain = 100.0 * o.to_plain as f64 / o.scrubbed.max(1) as f64;
            let spared = (o.hit * CLEAR_NS) as f64 / MS as f64;
            table += &format!(
                "| {name}{turn} | {:.1} | {:.0} | {:.1} | {plain:.0} | {:.2} | {spared:.2} |\n",
                mib(o.asked),
                100.0 * o.hit_share(),
                mib(o.scrubbed),
                o.spent_ns as f64 / MS as f64,
            );
        }
    }
    table
}

/// A change of policy shows in this table's history.
#[test]
fn the_table_says_what_the_policy_makes_of_each_recording() {
    let table = table();
    assert_eq!(include_str!("replay.txt"), table, "tests/demand/replay.txt is to be:\n{table}");
}

#[test]
fn no_recording_costs_more_than_idle_time_is_worth() {
    for (name, text) in RECORDINGS {
        let (first, then) = twice(text);
        let (spent, spared) = (first.spent_ns + then.spent_ns, (first.hit + then.hit) * CLEAR_NS);
        // What a size may cost before it is judged.
        assert!(spent <= 4 * spared + 12 * MS, "{name}: {first:?} {then:?}");
    }
}
