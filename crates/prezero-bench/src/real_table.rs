//! The programs of `prezero bench real` as a person reads them.
//!
//! Wall time and peak size of each allocator, then what prezero did for the difference, then the
//! verdict on each program.

use comfy_table::{CellAlignment, Table, presets::UTF8_BORDERS_ONLY};

use super::peers::{BARE, GLIBC, PREZERO};
use super::real_report::{Cost, LARGEST, Measured, Report};
use super::samples::{Change, Judged, Spread};

/// The whole report as text.
pub fn render(report: &Report) -> String {
    let missing = |(name, mend): &(String, String)| format!("left out: {name}: {mend}\n");
    let count = |what| report.programs.iter().filter(|program| mark(program) == what).count();
    let told = |what, words| match count(what) {
        0 => String::new(),
        some => format!(", {some} {words}"),
    };
    let others = told("LIMIT", "at the limit") + &told("HIDDEN", "hidden by noise");
    format!(
        "{}\n{}{}up to {} runs each, interleaved, then turns of glibc, bare and prezero for up to {} s, medians; \
         the text has {} MiB; bare: a preloaded library that passes each call on to glibc\n\
         \nwall time, s; x glibc, x bare: theirs over prezero's, over all turns; ±: of the one before, 95 %; x best: the medians'\n{}\n\
         \npeak resident, MiB, of the largest process; prezero's over the smallest peer's\n{}\n\
         \nCPU time, s, children included; x glibc: glibc's over prezero's; prezero's counters of its first run: bytes in MiB, scrubd in ms\n{}\n\
         \n{}{} of {} programs as asked{others}: at most 1 % slower than glibc, at most 10 % above the smallest \
         peer's peak,\nand 1.2x glibc where zeroed memory is asked for at 512 MiB/s or more; at the limit: slower than glibc, \
         or it may be, but at most 1 % slower than bare\n",
        report.machine,
        report.field.absences(),
        report.missing.iter().map(missing).collect::<String>(),
        report.runs,
        report.pairs_s,
        report.text_mib,
        wall_table(report),
        size_table(report),
        account_table(report),
        report.programs.iter().map(verdict).collect::<String>(),
        count("met"),
        report.programs.len()
    )
}

fn wall_table(report: &Report) -> Table {
    let last = ["x glibc", "±", "x bare", "±", "turns", "x best", "best peer"];
    let mut table = started(report, &last);
    for program in &report.programs {
        let wall = |cost: &Cost| cost.wall_s.median;
        let ours = program.of(PREZERO).map(wall);
        let best = program.best(wall);
        let turns = [GLIBC, BARE].map(|other| of_turns(program, other, |cost| &cost.wall_s));
        let last = [
            program.of(PREZERO).map_or(0, |cost| cost.wall_s.samples.len()).to_string(),
            ratio(best.map(wall), ours),
            best.map_or("-".into(), |best| best.allocator.clone()),
        ];
        table.add_row(row(report, program, wall, 3).chain(turns.into_iter().flatten()).chain(last));
    }
    finished(table)
}

fn size_table(report: &Report) -> Table {
    let mut table = started(report, &["x least", "least"]);
    for program in &report.programs {
        let size = |cost: &Cost| cost.rss_mib.median;
        let least = program.best(size);
        let last = [
            ratio(program.of(PREZERO).map(size), least.map(size)),
            least.map_or("-".into(), |least| least.allocator.clone()),
        ];
        table.add_row(row(report, program, size, 0).chain(last));
    }
    finished(table)
}

fn account_table(report: &Report) -> Table {
    let mut table = started(
        report,
        &[
            "x glibc",
            "±",
            "zero asked",
            "hit",
            "cleared",
            "to kernel",
            "plain",
            "scrubbed",
            "wasted",
            "scrubd",
            "net",
        ],
    );
    for program in &report.programs {
        let mib = |bytes: u64| format!("{:.0}", bytes as f64 / (1 << 20) as f64);
        let counter = |name| program.counter(name);
        let wasted: u64 =
            ["waste_bytes", "unused_zero_bytes", "resident_zero_bytes"].map(counter).iter().sum();
        let cost_ms = counter("daemon_cpu_ns") as f64 / 1e6;
        let clear_ns = program.stats["clear_ns_per_page"].as_f64().unwrap_or(0.0);
        let saved_ms = (counter("hit_bytes") / 4096) as f64 * clear_ns / 1e6;
        let turns = of_turns(program, GLIBC, |cost| &cost.cpu_s);
        let last = [
            mib(program.zeroed()),
            mib(counter("hit_bytes")),
            mib(counter("miss_bytes")),
            mib(counter("served_absent_bytes")),
            counter("plain_requests").to_string(),
            mib(counter("scrubbed_bytes")),
            mib(wasted),
            format!("{cost_ms:.0}"),
            format!("{:+.0}", saved_ms - cost_ms),
        ];
        let costs = row(report, program, |cost| cost.cpu_s.median, 3);
        table.add_row(costs.chain(turns).chain(last));
    }
    finished(table)
}

/// What a program misses, in words.
fn faults(program: &Measured) -> Vec<String> {
    let Some(verdict) = program.verdict() else {
        return vec!["glibc or prezero did not run".into()];
    };
    let mut faults = vec![];
    if verdict.speed == Judged::Beyond
        && verdict.beyond_limit().is_none_or(|it| it == Judged::Beyond)
    {
        faults.push(format!("slower than glibc ({})", change(program, GLIBC)));
    }
    if !verdict.small_enough {
        faults.push("larger than the smallest peer".into());
    }
    if verdict.gains == Some(Judged::Beyond) {
        faults.push(format!("zeroes much and gains too little ({})", limit(program)));
    }
    faults
}

/// What the peers gain where prezero gains too little: with all the memory they like, and with
/// what is allowed here.
fn limit(program: &Measured) -> String {
    let told = |most: f64| {
        program.fastest_within(most).map(|(peer, gain, size)| {
            format!("{} {gain:.2}x at {size:.2} of the smallest peak", peer.allocator)
        })
    };
    match (told(f64::INFINITY), told(LARGEST)) {
        (Some(any), Some(small)) if any == small => any,
        (Some(any), Some(small)) => format!("{any}, {small}"),
        (Some(any), None) => format!("{any}, no peer is faster than glibc within {LARGEST:.2}"),
        (None, _) => "no peer is faster than glibc".into(),
    }
}

/// What cannot be told of it.
fn hidden(program: &Measured) -> Vec<&'static str> {
    let Some(verdict) = program.verdict() else { return vec![] };
    let mut hidden = vec![];
    match (verdict.speed, verdict.beyond_limit()) {
        (Judged::Unclear, limit) if limit != Some(Judged::Within) => {
            hidden.push("whether it is more than 1 % slower");
        }
        (Judged::Beyond, Some(Judged::Unclear)) => hidden.push("whether it is at the limit"),
        _ => {}
    }
    if verdict.gains == Some(Judged::Unclear) {
        hidden.push("whether it gains enough");
    }
    hidden
}

/// Whether it is slower, or may be, by what any library costs it.
fn is_at_limit(program: &Measured) -> bool {
    let beyond = program.verdict().and_then(|verdict| verdict.beyond_limit());
    beyond == Some(Judged::Within)
}

/// How much more wall time it takes than under another.
fn change(program: &Measured, other: &str) -> String {
    let told = |Change { change, noise }| {
        format!("{:+.1} % of {other}'s wall time, ± {:.1}", 100.0 * change, 100.0 * noise)
    };
    let turns = program.of(PREZERO).map_or(0, |cost| cost.wall_s.samples.len());
    let change = program.change(PREZERO, other, |cost| &cost.wall_s);
    change.map_or("not in turns".into(), told) + &format!(", {turns} runs")
}

/// What another takes over what prezero does, and the noise of that.
fn of_turns(program: &Measured, other: &str, value: fn(&Cost) -> &Spread) -> [String; 2] {
    let told = |Change { change, noise }| [1.0 / (1.0 + change), noise].map(|x| format!("{x:.3}"));
    program.change(PREZERO, other, value).map_or(["-", "-"].map(Into::into), told)
}

/// What a program comes to.
fn mark(program: &Measured) -> &'static str {
    match (faults(program).is_empty(), hidden(program).is_empty()) {
        (false, _) => "MISSED",
        (true, false) => "HIDDEN",
        (true, true) if is_at_limit(program) => "LIMIT",
        (true, true) => "met",
    }
}

fn verdict(program: &Measured) -> String {
    let mark = mark(program);
    let tail = match mark {
        "MISSED" => format!(": {}", faults(program).join(", ")),
        "HIDDEN" => {
            format!(": noise hides {} ({})", hidden(program).join(" and "), change(program, GLIBC))
        }
        "LIMIT" => format!(": {}; {}", change(program, GLIBC), change(program, BARE)),
        _ => String::new(),
    };
    format!("{mark:<6} {:<8} {}{tail}\n", program.program, program.about)
}

fn row<'a>(
    report: &'a Report,
    program: &'a Measured,
    value: fn(&Cost) -> f64,
    digits: usize,
) -> impl Iterator<Item = String> + use<'a> {
    let shown = move |cost: &Cost| format!("{:.digits$}", value(cost));
    let values = report
        .field
        .allocators
        .iter()
        .map(move |allocator| program.of(&allocator.name).map_or("-".into(), shown));
    [program.program.clone()].into_iter().chain(values)
}

fn ratio(part: Option<f64>, whole: Option<f64>) -> String {
    part.zip(whole).map_or("-".into(), |(part, whole)| format!("{:.3}", part / whole))
}

fn started(report: &Report, last: &[&str]) -> Table {
    let mut table = Table::new();
    table.load_style(UTF8_BORDERS_ONLY);
    let names = report.field.allocators.iter().map(|allocator| allocator.name.as_str());
    table.set_header(["program"].into_iter().chain(names).chain(last.iter().copied()));
    table
}

fn finished(mut table: Table) -> Table {
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::super::real_report::tests::measured;
    use super::*;

    #[test]
    fn a_program_that_misses_is_told_with_all_it_misses() {
        let line = verdict(&measured(&[(GLIBC, 1.0, 100.0), (PREZERO, 1.1, 120.0)], 1 << 30));
        assert!(line.starts_with("MISSED sort"), "{line}");
        for words in ["slower than glibc", "larger than the smallest", "gains too little"] {
            assert!(line.contains(words), "{line}");
        }
        let line = verdict(&measured(&[(GLIBC, 1.0, 100.0), (PREZERO, 0.9, 100.0)], 0));
        assert!(line.starts_with("met    sort"), "{line}");
    }

    #[test]
    fn what_noise_hides_is_neither_met_nor_missed() {
        let mut noisy = measured(&[(GLIBC, 1.0, 100.0), (PREZERO, 1.0, 100.0)], 0);
        noisy.results[1].wall_s.samples = vec![1.0 / 1.1, 1.0 / 1.05, 1.0, 1.05, 1.1];
        let line = verdict(&noisy);
        assert!(line.starts_with("HIDDEN sort"), "{line}");
        assert!(line.contains("(+0.0 % of glibc's wall time, ± 10.0, 5 runs)"), "{line}");
        noisy.results[1].rss_mib = noisy.results[0].rss_mib.clone();
        noisy.results[1].rss_mib.median = 120.0;
        assert!(verdict(&noisy).starts_with("MISSED"), "another fault counts");
    }

    #[test]
    fn what_any_library_costs_is_told_as_the_limit() {
        let with = |bare| {
            verdict(&measured(&[(GLIBC, 1.0, 1.0), (PREZERO, 1.05, 1.0), (BARE, bare, 1.0)], 0))
        };
        let line = with(1.045);
        assert!(line.starts_with("LIMIT  sort"), "{line}");
        assert!(line.contains("+5.0 % of glibc's") && line.contains("+0.5 % of bare's"), "{line}");
        assert!(with(1.03).starts_with("MISSED"), "more than that is ours");
        let mut noisy = measured(&[(GLIBC, 1.0, 1.0), (PREZERO, 1.01, 1.0), (BARE, 1.008, 1.0)], 0);
        noisy.results[0].wall_s.samples = vec![0.99, 0.995, 1.0, 1.005, 1.01];
        assert!(verdict(&noisy).starts_with("LIMIT"), "on whichever side of glibc's 1 % it is");
        noisy.results[2].wall_s.samples = vec![0.9, 0.95, 1.0, 1.05, 1.1];
        let line = verdict(&noisy);
        assert!(line.starts_with("HIDDEN") && line.contains("more than 1 % slower"), "{line}");
    }

    #[test]
    fn a_gain_that_is_missed_is_held_against_what_the_peers_reach() {
        let keep = ("glibc-keep", 0.8, 136.0);
        let ours = (PREZERO, 0.9, 104.0);
        let line = verdict(&measured(&[(GLIBC, 1.0, 100.0), keep, ours], 1 << 30));
        let words = "(glibc-keep 1.25x at 1.36 of the smallest peak, no peer is faster than glibc within 1.10)";
        assert!(line.contains(words), "{line}");
        let small = ("tcmalloc", 0.95, 105.0);
        let line = verdict(&measured(&[(GLIBC, 1.0, 100.0), keep, small, ours], 1 << 30));
        let words = "smallest peak, tcmalloc 1.05x at 1.05 of";
        assert!(line.contains(words), "{line}");
        let line = verdict(&measured(&[(GLIBC, 1.0, 100.0), small, ours], 1 << 30));
        assert!(line.contains("(tcmalloc 1.05x at 1.05 of the smallest peak)"), "{line}");
        let line = verdict(&measured(&[(GLIBC, 1.0, 100.0), ours], 1 << 30));
        assert!(line.contains("(no peer is faster than glibc)"), "{line}");
    }

    #[test]
    fn ratios_say_nothing_without_both() {
        assert_eq!(ratio(Some(3.0), Some(2.0)), "1.500");
        assert_eq!(ratio(None, Some(2.0)), "-");
    }
}
