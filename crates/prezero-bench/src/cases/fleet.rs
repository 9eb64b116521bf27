//! `prezero bench fleet` and `plan`: what `prezerod-fleet` plays in made-up time, as figures.

use anyhow::Result;
use prezerod_fleet::hosts::Fleet;
use prezerod_fleet::plan::Plan;
use prezerod_fleet::told::{self, Played, Progress};

use crate::figure::{Across, Better, Case, Figure, Report, Sheet};
use crate::peers::Field;
use crate::progress;

struct Bar;

impl Progress for Bar {
    fn expect(&self, steps: usize) {
        progress::expect(steps);
    }

    fn step(&self, label: &str) -> Result<()> {
        progress::step(label)
    }

    fn interrupted() -> bool {
        progress::interrupted()
    }
}

fn report(name: &str, (notes, sheets): Played) -> Report {
    let sheet = |played: told::Sheet| {
        let mut sheet = Sheet::new(played.title, played.labels, Across::Name);
        sheet.notes = played.notes;
        sheet.extend(played.figures.into_iter().map(|figure| {
            let of: Vec<&str> = figure.of.iter().map(String::as_str).collect();
            let better = match figure.better {
                told::Better::Less => Better::Less,
                told::Better::More => Better::More,
                told::Better::Neither => Better::Neither,
            };
            Figure::new(&figure.who, &figure.name, &figure.unit, figure.value)
                .case(&of)
                .better(better)
        }));
        sheet
    };
    let sheets = sheets.into_iter().map(sheet).collect();
    Report { notes, sheets, ..Report::here(name, Field::none()) }
}

impl Case for Fleet {
    fn measure(&self) -> Result<Report> {
        Ok(report("fleet", self.play(&Bar)?))
    }
}

impl Case for Plan {
    fn measure(&self) -> Result<Report> {
        Ok(report("plan", self.play(&Bar)?))
    }
}
