//! The runner: what `bench/cases.toml` says, as figures.
//!
//! Ways take turns, a fresh process each, the order rotated. A row may go on until its ratio is known.

mod contest;
mod inputs;
mod options;
mod plan;
mod posts;
mod said;
mod sheet;
mod turns;

use anyhow::{Result, bail, ensure};
use prezerod::protocol::Backing;

pub use contest::{Contest, Row, Run, Way};
pub use inputs::Inputs;
pub use options::{Options, command};
pub use turns::{PAIRS, go_on, in_turns};

use crate::broker::{self, Broker, HUGE, Reserved};
use crate::cost::Costs;
use crate::figure::{self, Across, Report};
use crate::peers::{self, Field, GLIBC};
use crate::progress::{self, kept, step};
use crate::scratch::Scratch;
use crate::table::{self, Benchmark, CASES, Named, Sheet, Words, filled};
use crate::worker::{Program, warm};
use plan::{Plan, Planned};

/// Runs of a row under each arm, where the case does not say.
const RUNS: usize = 9;

/// Measures a case of the file.
pub fn measure(name: &str, case: &'static Benchmark, options: &Options) -> Result<Report> {
    let runs = options.runs.or(case.runs).unwrap_or(RUNS);
    ensure!(runs > 0, "--runs 0: nothing to measure; give 1 or more");
    ensure!(runs >= case.least, "--runs {runs}: too few; give {} or more", case.least);
    let mut report = Report::here(name, field(case, options)?);
    let mut plan = Plan::new(case, options, &report.field, runs)?;
    let mut planned = vec![];
    for sheet in case.sheet.iter().filter(|sheet| options.wants_sheet(sheet)) {
        planned.push((sheet, plan.rows(sheet)?));
    }
    let rows = || planned.iter().flat_map(|(_, rows)| rows);
    let only = options.all("only").join(",");
    let names = plan::names(case).join(",");
    let why = match plan.notes.join("; ") {
        why if why.is_empty() => format!("--only {only}: no such row; give some of {names}"),
        why => why,
    };
    ensure!(rows().next().is_some(), why);
    let pages = rows().map(|planned| planned.row.bytes).max().unwrap_or(0) / HUGE;
    let of_pool = |way: &&Way| way.said.backing.as_deref() == Some("hugetlb");
    let leases = rows().map(|row| row.ways.iter().filter(of_pool).count().max(1) as u64).max();
    // A lease ready for each way, as much for the rival, and an eighth: a JVM's tables take large pages, too.
    let reserved = (leases.unwrap_or(1) + 1) * pages + pages / 8 + 64;
    let _reserved = options.reserve.then(|| Reserved::new(reserved)).transpose()?;
    if let Some(size) = &case.warm {
        warm(table::bytes(size)?)?;
    }
    progress::expect(rows().map(|each| each.ways.len() * each.runs).sum());
    report.notes.extend(plan.notes);
    let mut costs = Costs::default();
    let stage = Stage { name, case, options, runs };
    for (sheet, rows) in planned {
        if !stage.sheet(sheet, rows, &mut report, &mut costs)? {
            break;
        }
    }
    report.sheets.extend(case.costs.as_ref().map(|title| costs.sheet(title)));
    report.sheets.retain(|sheet| !sheet.figures.is_empty());
    Ok(report)
}

/// The allocators that the user asks for, or that arms name.
fn field(case: &Benchmark, options: &Options) -> Result<Field> {
    if case.options.contains_key("peers") {
        return Field::find(options.all("peers"));
    }
    let arms = case.sheet.iter().flat_map(|sheet| &sheet.program.arms).map(|arm| CASES.arm(arm).of);
    let named = arms.filter(|of| peers::names().any(|name| name == of));
    // Without a name it would be all of them.
    Field::find(&named.chain([GLIBC.into()]).collect::<Vec<_>>())
}

/// What all sheets of a case share.
struct Stage<'a> {
    name: &'a str,
    case: &'static Benchmark,
    options: &'a Options,
    runs: usize,
}

impl Stage<'_> {
    /// Measures a sheet; whether it came to its end.
    fn sheet(
        &self,
        sheet: &'static Sheet,
        rows: Vec<Planned>,
        report: &mut Report,
        costs: &mut Costs,
    ) -> Result<bool> {
        let figures = Named::all(sheet)?;
        let (mut table, mut account) = (self.empty(sheet), Costs::default());
        let (mut whole, mut said) = (true, vec![]);
        for mut planned in rows {
            let Some(taken) = self.row(sheet, &figures, &mut planned, report, &mut account)? else {
                whole = false;
                break;
            };
            for (way, runs) in planned.ways.iter().zip(&taken) {
                runs.iter().for_each(|run| costs.add(&[], &way.name, &run.spent, &run.stats));
            }
            let first = taken.iter().flatten().next().map(|run| run.said.clone());
            said.push((planned.row.of.clone(), first.unwrap_or_default()));
            table.extend(sheet::figures(sheet, &figures, &planned.row, &planned.ways, &taken)?);
        }
        posts::add(sheet, &figures, &mut table, self.options, &said)?;
        if let Some(wanted) = sheet.asked.best {
            table.compare_with_best(&figures[0].name, Some(wanted).filter(|wanted| *wanted > 0.0));
        }
        report.sheets.push(table);
        if sheet.asked.counters {
            let title = format!("{}: what prezero did for it", sheet.title);
            report.sheets.push(account.sheet_of(&title, &sheet.labels));
        }
        Ok(whole)
    }

    /// The runs of a row in each way; `None`: interrupted.
    fn row(
        &self,
        sheet: &Sheet,
        figures: &[Named],
        planned: &mut Planned,
        report: &mut Report,
        account: &mut Costs,
    ) -> Result<Option<Vec<Vec<Run>>>> {
        let scratch = &Scratch::new()?;
        let brokers = brokers(planned, scratch, &mut report.notes)?;
        let Planned { row, ways, runs, keep, .. } = &*planned;
        let (name, prints) = (self.name, !figures.iter().all(said::is_spent));
        let contest = |stats| Contest { name, ways, stats, prints, scratch };
        let once = |contest: &Contest<'_>, which: usize| {
            step(&format!("{name}: {} under {}", row.of.join(" "), ways[which].name))?;
            if let Some(size) = &sheet.program.warm {
                warm(table::bytes(size)?)?;
            }
            brokers[which].as_ref().map_or(Ok(()), |broker| broker.wait_for(*keep))?;
            contest.once(&ways[which], row)
        };
        if sheet.asked.counters {
            // One uncounted run of all: the page cache has program and input then, and prezero tells its counters.
            for (which, way) in ways.iter().enumerate() {
                let Some(run) = kept(once(&contest(true), which))? else { return Ok(None) };
                account.add(&row.of, &way.name, &run.spent, &run.stats);
            }
        }
        let contest = contest(self.case.costs.is_some());
        let mut taken: Vec<Vec<Run>> = ways.iter().map(|_| vec![]).collect();
        for (_, which) in in_turns(*runs, ways.len()) {
            match once(&contest, which) {
                Ok(run) => taken[which].push(run),
                Err(error) if error.is::<progress::Interrupted>() => return Ok(None),
                // A lease may not come; what it is compared with has to.
                Err(error) if ways[which].said.backing.is_some() => {
                    report.notes.push(format!("left out: {error:#}"));
                }
                Err(error) => return Err(error),
            }
        }
        let seconds = self.options.number("pairs-s").unwrap_or(0.0) as u64;
        sheet::go_on_until(&contest, row, sheet, &mut taken, seconds)?;
        let wrong = taken.iter().zip(ways).find(|(runs, _)| !said::agree(&taken[0], runs));
        if let Some((_, way)) = wrong {
            bail!("{}: another checksum under {}", row.of.join(" "), way.name);
        }
        Ok(Some(taken))
    }

    fn empty(&self, sheet: &Sheet) -> figure::Sheet {
        let across = if sheet.asked.best.is_some() { Across::Who } else { Across::Name };
        let labels: Vec<&str> = sheet.labels.iter().map(String::as_str).collect();
        let options = self.case.options.keys();
        let mut words: Words =
            options.map(|name| (name.clone(), self.options.all(name).join(","))).collect();
        if sheet.notes.iter().any(|note| note == "{cuda}") {
            words.insert("cuda".into(), cuda());
        }
        let mut table = figure::Sheet::new(&sheet.title, &labels, across);
        let notes = sheet.notes.iter().map(|note| filled(note, &words));
        table.notes = notes.filter(|note| !note.is_empty()).collect();
        let runs = sheet.program.runs.filter(|_| self.options.runs.is_none()).unwrap_or(self.runs);
        table.note(format!("{runs} runs in turns, medians"))
    }
}

/// A broker for each way that needs one. A way that needs pages that are not here is dropped, and why is said.
fn brokers(
    planned: &mut Planned,
    scratch: &Scratch,
    notes: &mut Vec<String>,
) -> Result<Vec<Option<Broker>>> {
    let (bytes, keep) = (planned.row.bytes, planned.keep);
    let named = |name: Option<&str>| match name {
        Some("thp") => Some(Backing::Thp),
        Some("hugetlb") => Some(Backing::Hugetlb),
        _ => None,
    };
    let place = |way: &Way| named(way.said.backing.as_deref().or(way.said.pages.as_deref()));
    if planned.ways.iter().any(|way| place(way).is_some()) {
        let size = prezero::Size(bytes as usize);
        ensure!(bytes > 0 && bytes.is_multiple_of(HUGE), "--sizes {size}: give multiples of 2M");
        let mut why = vec![];
        let there = broker::backings((keep + 1) * bytes, &mut why);
        let ways = planned.ways.len();
        planned.ways.retain(|way| place(way).is_none_or(|place| there.contains(&place)));
        why.retain(|line| ways > planned.ways.len() && !notes.contains(line));
        notes.extend(why);
    }
    let start = |way: &mut Way| {
        let backing = named(way.said.backing.as_deref());
        let broker = backing.map(|backing| Broker::start(backing, bytes, keep, &way.said.config));
        let broker = broker.transpose()?;
        if way.said.backing.is_some() {
            let socket = broker.as_ref().map_or(scratch.file("no-broker"), Broker::socket);
            let set = [("PREZERO_SOCKET", socket), ("STANDIN_DIR", scratch.file(""))];
            let set = set.map(|(name, path)| (name.into(), path.display().to_string()));
            way.allocator.environment.extend(set);
        }
        Ok(broker)
    };
    planned.ways.iter_mut().map(start).collect()
}

/// What stands in for a GPU, if anything does.
fn cuda() -> String {
    let which = |program: Program| {
        Ok(std::process::Command::new(program.path()).arg("which").output()?.stdout)
    };
    let said = Program::find("pinned").and_then(which).unwrap_or_default();
    String::from_utf8_lossy(&said).trim().into()
}
