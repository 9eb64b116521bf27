//! `prezero bench plan`: how much memory a host gives up so that starts find it, and on how many hosts they find room.
//!
//! No memory is made and no clock is read: each row plays a made-up cluster of [`fleet`](crate::fleet). The figures are the
//! same in every run.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::time::Duration;

use crate::fleet::simulation::Machine;
use crate::fleet::{Arrivals, Busy, Cluster, Full, RULES, Setting, Time, play};
use anyhow::{Result, ensure};
use prezero_host::Size;

use crate::told::{Better, Figure, Played, Progress, Sheet};

/// Starts that a cell plays: a share of 99.9 % misses 200 of them.
/// Fixed: the last digit of the tables.
const STARTS: u64 = 200_000;
/// The most leases that a host keeps.
/// Fixed: a bound of the search.
const MOST_KEPT: u64 = 1024;
/// The most hosts.
/// Fixed: a bound of the search.
const MOST_HOSTS: u64 = 1 << 20;
/// Hosts and days that play what the broker learns by itself.
/// Fixed: the last digit of the tables.
const LEARNT: (u32, u32) = (10, 7);
const S: f64 = 1e9;
const HOUR: f64 = 3600.0 * S;

/// The command line of `prezero bench plan`.
#[derive(clap::Args, Debug)]
#[command(after_help = "Example: prezero bench plan --size 4G --starts 20,200 --busy 100")]
pub struct Plan {
    /// What a start leases
    #[arg(long, value_name = "SIZE", default_value = "2G")]
    size: Size,
    /// Starts on a host in an hour
    #[arg(long, value_delimiter = ',', value_name = "N,...", default_value = "6,60,600,3600")]
    starts: Vec<u32>,
    /// What a filler makes in an idle second
    #[arg(long, value_name = "SIZE", default_value = "8G")]
    pace: Size,
    /// Time for which a host is busy, %
    #[arg(long, value_delimiter = ',', value_name = "%,...", default_value = "0,50,100")]
    busy: Vec<f64>,
    /// Busy time at a stretch
    #[arg(long, value_name = "S", default_value_t = 60.0)]
    busy_for: f64,
    /// A busy host's pace, % (prezerod's cpu-busy)
    #[arg(long, value_name = "%", default_value_t = 5.0)]
    cpu_busy: f64,
    /// Starts that find memory ready, %
    #[arg(long, value_delimiter = ',', value_name = "%,...", default_value = "99,99.9")]
    goal: Vec<f64>,
    /// Starts of the cluster in an hour
    #[arg(long, value_delimiter = ',', value_name = "N,...", default_value = "100,1000,10000")]
    all: Vec<u32>,
    /// How long a lease lives
    #[arg(long, value_name = "S", default_value_t = 3600.0)]
    life: f64,
    /// Memory of a host for leases
    #[arg(long, value_name = "SIZE", default_value = "64G")]
    room: Size,
}

impl Plan {
    /// Plays all of it.
    ///
    /// # Errors
    /// A mistake in the command line.
    pub fn play<P: Progress>(&self, progress: &P) -> Result<Played> {
        self.check()?;
        let note = format!(
            "starts at random, of {} each; {} made in a second on idle CPUs, {} % of that on busy ones",
            self.size, self.pace, self.cpu_busy
        );
        progress.expect(self.starts.len() * (self.busy.len() + 1) + self.all.len());
        Ok((vec![note], vec![self.stock(progress), self.hosts(progress)]))
    }

    fn check(&self) -> Result<()> {
        let percent = |at: &f64| (0.0..=100.0).contains(at);
        ensure!(self.size.0 >= 2 << 20, "--size {}: give 2M or more", self.size);
        ensure!(self.pace.0 >= 2 << 20, "--pace {}: give 2M or more", self.pace);
        ensure!(
            self.room.0 >= self.size.0,
            "--room {}: give the size of a start or more",
            self.room
        );
        for (name, all) in [("--busy", &self.busy), ("--goal", &self.goal)] {
            let wrong = all.iter().find(|at| !percent(at));
            ensure!(wrong.is_none(), "{name} {}: give 0 to 100", wrong.unwrap_or(&0.0));
        }
        let cpu = self.cpu_busy;
        ensure!((0.1..=100.0).contains(&cpu), "--cpu-busy {cpu}: give 0.1 to 100");
        for (name, seconds) in [("--life", self.life), ("--busy-for", self.busy_for)] {
            ensure!((0.001..=1e8).contains(&seconds), "{name} {seconds}: give 0.001 to 1e8");
        }
        for (name, all) in [("--starts", &self.starts), ("--all", &self.all)] {
            ensure!(
                all.iter().all(|rate| (1..=1_000_000).contains(rate)),
                "{name}: give 1 to 1000000"
            );
        }
        Ok(())
    }

    /// Of one host, with these starts an hour.
    fn host(&self, starts: u32, busy: f64) -> Cluster {
        let share = busy / 100.0;
        Cluster {
            hosts: 1,
            room: u64::MAX,
            keep: 0,
            gap: Time::Random(HOUR / f64::from(starts)),
            // Stock is made whether leases live or not.
            life: Time::Fixed(0.0),
            making: Time::Fixed(self.size.0 as f64 / self.pace.0 as f64 * S),
            busy: Busy { share, span: self.busy_for * S, pace: self.cpu_busy / 100.0 },
            full: Full::Lost,
        }
    }

    fn stock<P: Progress>(&self, progress: &P) -> Sheet {
        let mut sheet = Sheet::new(
            "Plan: memory that a host gives up so that starts find it",
            &["starts an hour", "CPUs busy"],
        )
        .note("keep: `keep` of [[stock]], times the size; nothing where no stock is enough")
        .note("learnt: what prezerod keeps by itself on idle CPUs, on average, and its hits");
        for starts in &self.starts {
            let row = starts.to_string();
            for busy in &self.busy {
                if progress.step(&format!("plan: {starts} an hour, CPUs busy {busy} %")).is_err() {
                    return sheet;
                }
                let host = self.host(*starts, *busy);
                // Several goals look at the same stock.
                let played = RefCell::new(BTreeMap::new());
                for goal in &self.goal {
                    let enough = |keep: u64| {
                        let share = *played
                            .borrow_mut()
                            .entry(keep)
                            .or_insert_with(|| Cluster { keep, ..host }.play(STARTS).ready_share());
                        share >= goal / 100.0
                    };
                    let keep = crate::fleet::least(MOST_KEPT, enough);
                    let gib = |keep: u64| keep as f64 * self.size.0 as f64 / f64::from(1 << 30);
                    let figure = |value| {
                        Figure::new("keep", &format!("for {goal} %"), "GiB", value)
                            .case(&[&row, &format!("{busy} %")])
                    };
                    sheet.extend(keep.map(|keep| figure(gib(keep))));
                }
            }
            if progress.step(&format!("plan: {starts} an hour, learnt")).is_err() {
                return sheet;
            }
            sheet.extend(self.learnt::<P>(*starts, &row));
        }
        sheet
    }

    /// What the broker's own rule comes to.
    fn learnt<P: Progress>(&self, starts: u32, row: &str) -> Vec<Figure> {
        let (hosts, days) = LEARNT;
        let bytes = (self.size.0 as u64).next_multiple_of(2 << 20);
        let arrivals = Arrivals::at_random(hosts, days, (HOUR / f64::from(starts)) as u64, bytes);
        let machine = Machine { pace: self.pace.0 as u64, limit: u64::MAX >> 1 };
        let setting = Setting { machine, forget: Duration::from_secs(4500), keep: 0 };
        let tally = play(&arrivals, &RULES[0], &setting, P::interrupted);
        let of = |name, unit, value| Figure::new("learnt", name, unit, value).case(&[row, "0 %"]);
        vec![
            of("on average", "GiB", tally.ready / tally.length_ns / f64::from(1 << 30)),
            of("hits", "%", 100.0 * tally.hits as f64 / tally.requests() as f64)
                .better(Better::More),
        ]
    }

    fn hosts<P: Progress>(&self, progress: &P) -> Sheet {
        let mut sheet = Sheet::new("Plan: hosts on which starts find room", &["starts an hour"])
            .note(format!(
                "leases live for {} s on average; a host has room for {}",
                self.life,
                self.room.0 / self.size.0
            ));
        for all in &self.all {
            if progress.step(&format!("plan: hosts for {all} an hour")).is_err() {
                return sheet;
            }
            let cluster = Cluster {
                room: (self.room.0 / self.size.0) as u64,
                life: Time::Random(self.life * S),
                making: Time::Fixed(0.0),
                busy: Busy::NEVER,
                ..self.host(*all, 0.0)
            };
            let row = all.to_string();
            let of = |name: &str, unit, value| Figure::new("room", name, unit, value).case(&[&row]);
            let leases = f64::from(*all) * self.life / 3600.0;
            sheet.extend([of("leases at once", "", leases).better(Better::Neither)]);
            for goal in &self.goal {
                let hosts = cluster.hosts_for(goal / 100.0, STARTS, MOST_HOSTS);
                sheet
                    .extend(hosts.map(|hosts| of(&format!("for {goal} %"), "hosts", hosts as f64)));
            }
        }
        sheet
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    struct Silent;

    impl Progress for Silent {
        fn expect(&self, _: usize) {}
        fn step(&self, _: &str) -> Result<()> {
            Ok(())
        }
        fn interrupted() -> bool {
            false
        }
    }

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        plan: Plan,
    }

    #[test]
    fn a_filler_that_keeps_up_needs_one_and_a_slow_one_more() {
        let of = |words: &str| Line::parse_from(words.split(' ')).plan;
        let plan = of("plan --starts 36,3600 --busy 0 --goal 99 --all 100 --room 64G");
        let sheet = plan.stock(&Silent);
        let keep = |sheet: &Sheet, row, busy| sheet.value("keep", &[row, busy], "for 99 %");
        // 36 an hour take a quarter of a second each: one finds 1 - 0.0025 of them.
        assert_eq!(keep(&sheet, "36", "0 %"), Some(2.0));
        // At a load of 0.25 M/D/1 has fewer than 3 for 99.3 % of the time, fewer than 2 for 96.
        assert_eq!(keep(&sheet, "3600", "0 %"), Some(6.0));
        assert!(sheet.value("learnt", &["36", "0 %"], "hits") > Some(99.0));
        // At 5 % of its pace a filler makes one in 5 s: a load of 0.05.
        let busy = of("plan --starts 36 --busy 100 --goal 99").stock(&Silent);
        assert_eq!(keep(&busy, "36", "100 %"), Some(4.0));
        // 100 leases at once: Erlang B has 117 places for 99 %, which are four hosts of 32.
        assert_eq!(plan.hosts(&Silent).value("room", &["100"], "for 99 %"), Some(4.0));
    }
}
