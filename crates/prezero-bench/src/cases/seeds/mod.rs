//! `prezero bench seeds`: the experiments of the four posts that prezero comes from, again.
//!
//! Each is a small C program in `bench/seeds/` that also runs alone; here it runs at every
//! level that this machine has, beside the figures that were printed then. [`table`] is what
//! all of them write into, [`level`] where things run; each other module is one post.

mod faults;
mod level;
mod lmbench;
mod resident;
mod setting;
mod table;
mod write;

use std::cell::OnceCell;

use anyhow::{Result, ensure};
use level::{Elsewhere, Level};
use prezero_cli::companion;
use prezerod::host::Host;
use setting::Setting;

use crate::figure::{Case, Report, Sheet};
use crate::parse::chosen;
use crate::peers::Field;
use crate::progress::{self, Interrupted};
use crate::worker::warm;

/// An experiment: its name, how many steps it takes, and how it is made.
type Recipe = (&'static str, fn(&Setting) -> usize, fn(&Setting) -> Result<Vec<Sheet>>);

const EXPERIMENTS: [Recipe; 4] = [
    ("faults", faults::steps, faults::run),
    ("write", write::steps, write::run),
    ("lmbench", lmbench::steps, lmbench::run),
    ("resident", resident::steps, resident::run),
];

/// The command line of `prezero bench seeds`.
#[derive(clap::Args)]
#[command(after_help = "Example: prezero bench seeds --only write,resident --json seeds.json\n\
    In a guest or on another kernel: make seeds, run target/seeds/all.sh there, then\n  \
    prezero bench seeds --add \"patched kernel=LINES,LINES-OF-THE-UNPATCHED\"\n\
    For the kernel of linux/, patched and not: make -C linux seeds, or seeds-x86")]
pub struct Seeds {
    /// Which: faults (Lameter), write (Arcangeli), lmbench (Thorpe), resident (Shutemov) [all]
    #[arg(long, value_delimiter = ',', value_name = "NAME,...")]
    only: Vec<String>,
    /// Memory of Lameter's test, MiB
    #[arg(long, value_name = "MIB", default_value_t = 256)]
    mib: usize,
    /// Samples of what is measured by whole processes
    #[arg(long, value_name = "N", default_value_t = 3)]
    runs: usize,
    /// Which peers: glibc-keep, jemalloc, mimalloc, tcmalloc
    #[arg(
        long,
        value_delimiter = ',',
        value_name = "NAME,...",
        default_value = "glibc-keep,tcmalloc"
    )]
    peers: Vec<String>,
    /// Lines that bench/seeds/all.sh printed elsewhere, as a level of that name [and its base]
    #[arg(long, value_name = "NAME=FILE[,FILE]")]
    add: Vec<String>,
}

impl Case for Seeds {
    fn measure(&self) -> Result<Report> {
        let chosen = chosen(&EXPERIMENTS, |(name, ..)| name, &self.only, "experiment")?;
        ensure!(self.runs > 0, "--runs 0: nothing would be measured");
        ensure!(
            self.mib >= 16 && self.mib.is_multiple_of(2),
            "--mib {}: give an even number from 16 on",
            self.mib
        );
        let elsewhere =
            self.add.iter().map(|each| Elsewhere::read(each)).collect::<Result<Vec<_>>>()?.concat();
        let mut report = Report::here("seeds", Field::find(&self.peers)?);
        let (host, why) = host();
        report.notes.extend(why.map(|why| format!("left out: {why}")));
        if elsewhere.is_empty() {
            report.notes.push(
                "left out: patched kernel: not this one; run bench/seeds/all.sh on it and give its lines to --add".into(),
            );
        }
        warm(3 * (self.mib << 20))?;
        let levels = Level::all(&report.field);
        let setting = |mib| {
            let (levels, elsewhere) = (levels.clone(), elsewhere.clone());
            Setting { levels, elsewhere, host, broker: OnceCell::new(), mib, runs: self.runs }
        };
        // Arcangeli's has 4 MiB, whatever the others are given.
        let mib = |name: &str| if name == "write" { 4 } else { self.mib };
        progress::expect(chosen.iter().map(|(name, steps, _)| steps(&setting(mib(name)))).sum());
        for (name, _, run) in &chosen {
            match run(&setting(mib(name))) {
                Ok(sheets) => report.sheets.extend(sheets),
                Err(error) if error.is::<Interrupted>() => break,
                Err(error) => return Err(error.context(format!("seeds: {name}"))),
            }
        }
        Ok(report)
    }
}

/// Whether leases can be made here, and if not, why.
fn host() -> (bool, Option<String>) {
    let why = if !Host::new("/").thp() {
        "host: this kernel makes no transparent huge pages of shared memory".into()
    } else if let Err(absent) = companion::find(companion::PREZEROD) {
        format!("host: {absent}")
    } else {
        return (true, None);
    };
    (false, Some(why))
}
