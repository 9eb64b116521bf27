//! The presets: programs, their rows and ways, and what they print.

use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use prezero::Size;

use super::{Options, Row, Runs, Way, named};
use crate::machine;
use crate::peers::{Allocator, Field, GLIBC, PREZERO};
use crate::scratch::Scratch;
use crate::worker::Program;

/// What a figure is called, and its unit.
pub type Named = (&'static str, &'static str);

/// What of a run is read.
#[derive(Clone, Copy, Debug)]
pub enum Reads {
    /// The program prints its figures.
    Numbers,
    /// It prints what [`requests`] reads.
    Requests,
    /// The kernel says what it took: wall time and CPU time, ms.
    Spent,
}

/// See the module.
#[derive(Debug)]
pub struct Preset {
    pub name: &'static str,
    /// Of its tables.
    pub titles: &'static [&'static str],
    /// How they are read.
    pub note: String,
    pub labels: &'static [&'static str],
    pub program: Runs,
    /// Each with the number of its table.
    pub rows: Vec<(usize, Row)>,
    pub ways: Vec<Way>,
    pub reads: Reads,
    pub figures: &'static [Named],
    /// Options that it has a use for, beside those that all have.
    pub takes: &'static [&'static str],
    pub manner: Manner,
}

/// How it is measured, beside its programs.
#[derive(Debug)]
pub struct Manner {
    /// Runs, and how few are too few.
    pub runs: usize,
    pub least: usize,
    /// Of each table what is wanted beside the best peer, which is compared with in place of the first way.
    pub best: Vec<Option<f64>>,
    /// The title of a table of costs.
    pub costs: Option<&'static str>,
    /// Faulted in and given back before.
    pub warm_bytes: Option<usize>,
}

const PLAIN: Manner = Manner { runs: 9, least: 1, best: vec![], costs: None, warm_bytes: None };

/// What [`requests`] reads.
const REQUESTS: [Named; 5] =
    [("median", "us"), ("p95", "us"), ("CPU", "us"), ("faults", ""), ("peak", "MiB")];

/// What `bench/programs/ablate.c` prints, of one request: median and 95th percentile, us, CPU time, us, faults; and
/// the peak, MiB.
///
/// # Errors
/// It printed something else.
pub fn requests(numbers: &[f64]) -> Result<[f64; REQUESTS.len()]> {
    let &[requests, median, p95, cpu, faults, peak] = numbers else { bail!("it said {numbers:?}") };
    let (us, each) = (1e-3, 1.0 / requests.max(1.0));
    Ok([us * median, us * p95, us * each * cpu, each * faults, peak / 1024.0])
}

/// As `bench/programs/busy.c` knows them.
const PATTERNS: &str = "one-4m spare-4m spare-8m spare-16m two-4m two-16m eight-256k any-256k-4m any-1m-16m \
    any-4m-64m four-1m-16m three-4m-64m batch-256k batch-1m batch-4m mixed-4m threads-1m threads-4m";
/// Of `steady`: sizes, each written in four lines of each page and in all; and programs of several sizes.
const SIZES: &str = "128K 160K 256K 384K 512K 768K 1536K 3M 6M 12M 24M 32M 48M";
const OTHERS: &str = "handler handler-2 phases frames";
/// Of `grow`: blocks, MiB from, MiB to, percent of each step, times, small blocks that are taken after each step.
const GROWN: [&str; 6] = [
    "1 1 1024 50 3 0",
    "1 1 1024 10 3 4",
    "1 256 384 50 5 0",
    "2 128 256 50 5 0",
    "8 16 48 50 5 0",
    "4 4 16 50 9 0",
];
/// Of `thin`: MiB, pages touched of 1000, and the pause after, ms.
const THIN: [&str; 8] = [
    "1024 20 0",
    "1024 20 30",
    "64 50 0",
    "64 50 30",
    "64 200 0",
    "64 200 30",
    "8 100 0",
    "8 100 30",
];
/// Of `small`: MiB of small blocks, MiB of the large one.
const SMALL: [&str; 4] = ["1 4", "6 4", "20 16", "1 0"];
/// What `short` compiles.
const TEXT: &str = include_str!("../../../../../bench/programs/short.cc");
/// Of the fastest peer, where each thread frees what it allocated.
/// Fixed: what is asked of it.
const PAIR_WANTED: f64 = 1.0 / 1.3;

const NEVER: [(&str, &str); 1] = [("PREZERO_SCRUB_START", "never")];

/// Words of a line.
fn words(line: &str) -> Vec<&str> {
    line.split(' ').collect()
}

/// Rows whose labels are their arguments.
fn lines(lines: &[&str]) -> Vec<(usize, Row)> {
    lines.iter().map(|line| (0, Row::new(&words(line), &words(line)))).collect()
}

/// The preset of that name, and the allocators of its ways.
///
/// # Errors
/// It needs something that is not here.
pub fn find(name: &str, options: &Options) -> Result<(Preset, Field)> {
    let peers: &[&str] = match name {
        "busy" | "parts" => &["glibc-keep"],
        "grow" => &[GLIBC, "mimalloc", "jemalloc", "tcmalloc"],
        "steady" | "pair" => &[],
        _ => &[GLIBC],
    };
    let peers: Vec<_> = peers.iter().map(ToString::to_string).collect();
    let field = Field::find(if peers.is_empty() { &options.peers } else { &peers })?;
    let get = |name: &str| field.allocators.iter().find(|each| each.name == name).map(Way::of);
    let ours = || {
        let absent = field.absent.iter().find(|absent| absent.name == PREZERO);
        get(PREZERO).with_context(|| format!("prezero: {}", absent.map_or("", |it| &it.mend)))
    };
    let all: Vec<Way> = field.allocators.iter().map(Way::of).collect();
    let or = |given: &[usize], default: &[usize]| -> Vec<usize> {
        if given.is_empty() { default.to_vec() } else { given.to_vec() }
    };
    let only = |name: &&str| options.only.is_empty() || options.only.iter().any(|it| it == name);
    let base = |program: Runs| Preset {
        name: "",
        titles: &[],
        note: String::new(),
        labels: &["program"],
        program,
        rows: vec![],
        ways: all.clone(),
        reads: Reads::Numbers,
        figures: &[],
        takes: &[],
        manner: PLAIN,
    };
    let carried = |program: Result<Program>| program.map(|program| base(Runs::Ours(program)));
    let two_threads = || {
        let plain = get(GLIBC);
        let threads = plain.clone().map(|way| way.with("glibc, two threads", &[], &["thread"]));
        plain.into_iter().chain(threads).chain(get(PREZERO)).collect()
    };
    let preset = match name {
        "busy" => {
            let lines = options.lines.first().copied().unwrap_or(4).to_string();
            let seconds = options.seconds.unwrap_or(1.0).to_string();
            let row = |one: &str| (0, Row::new(&[one], &[one, &seconds, &lines]));
            let never = get(PREZERO).map(|way| way.with("never scrubs", &NEVER, &[]));
            Preset {
                name: "busy",
                titles: &["busy: programs that never pause"],
                note: format!("a step of the pattern; {lines} lines of each page are written"),
                labels: &["pattern"],
                rows: words(PATTERNS).into_iter().filter(only).map(row).collect(),
                ways: get("glibc-keep").into_iter().chain(never).chain(get(PREZERO)).collect(),
                figures: &[("step", "us")],
                takes: &["only", "seconds", "lines"],
                ..carried(Program::busy())?
            }
        }
        "steady" => {
            let sized = |fill: &str| {
                words(SIZES).into_iter().map(|size| format!("{fill}-{size}")).collect::<Vec<_>>()
            };
            let others = words(OTHERS).into_iter().map(String::from).collect();
            let all_rows = [sized("steady"), sized("fill"), others].concat();
            named::check(&options.only)?;
            let asked = if options.only.is_empty() { &all_rows } else { &options.only };
            let ms = |seconds: f64| format!("{:.0}", seconds * 1e3);
            let warm = options.warm.unwrap_or(3.0);
            let (warm_ms, counted) = (ms(warm), ms(options.seconds.unwrap_or(2.0)));
            let row = |one: &String| (0, Row::new(&[one], &[one, &warm_ms, &counted]));
            // The first is what the others are compared with: as asked, or glibc that keeps its memory.
            let first = options.peers.first().map_or("glibc-keep", String::as_str);
            let mut ways = all.clone();
            ways.sort_by_key(|way| way.name != first);
            Preset {
                name: "steady",
                titles: &["steady: programs after their first seconds"],
                note: format!(
                    "of one request, after {warm} s; four lines of each page, or all (fill)"
                ),
                rows: asked.iter().map(row).collect(),
                ways,
                reads: Reads::Requests,
                figures: &REQUESTS,
                takes: &["only", "warm", "seconds", "peers"],
                ..carried(Program::ablate())?
            }
        }
        "pair" => {
            let mut rows = vec![];
            for bytes in or(&options.sizes, &[64 << 10]) {
                let size = Size(bytes).to_string();
                let mut row = |nth, way: &str, count: usize, how: &str| {
                    let arguments = [way, &bytes.to_string(), &count.to_string()];
                    rows.push((nth, Row::new(&[&size, how], &arguments)));
                };
                for threads in or(&options.threads, &[1, 2, 4, 8]) {
                    let more = if threads == 1 { "" } else { "s" };
                    row(0, "local", threads, &format!("{threads} thread{more}"));
                }
                for ring in or(&options.ring, &[4, 64]) {
                    row(1, "remote", ring, &format!("remote, ring of {ring}"));
                }
            }
            Preset {
                name: "pair",
                titles: &[
                    "malloc and free of a block: each thread frees its own",
                    "malloc and free of a block: another thread frees",
                ],
                note: "wall: on each thread that has a CPU; CPU: all threads together; warm".into(),
                labels: &["size", "how"],
                rows,
                figures: &[("wall", "ns"), ("CPU", "ns")],
                takes: &["sizes", "threads", "ring", "peers"],
                manner: Manner {
                    runs: 15,
                    least: 9,
                    best: vec![Some(PAIR_WANTED), None],
                    costs: Some("Costs of pairs"),
                    warm_bytes: Some(1 << 30),
                },
                ..carried(Program::pair())?
            }
        }
        "parts" => {
            let mut rows = vec![];
            for bytes in or(&options.sizes, &[64 << 10, 256 << 10, 1 << 20]) {
                for lines in or(&options.lines, &[1, 16, 64]) {
                    let (size, lines) = (Size(bytes).to_string(), lines.to_string());
                    let arguments = [&*bytes.to_string(), &lines, "200"];
                    rows.push((0, Row::new(&[&size, &lines], &arguments)));
                }
            }
            Preset {
                name: "parts",
                titles: &["parts: a block after a pause"],
                note: "calloc, writing and free, each by itself and all together".into(),
                labels: &["size", "lines"],
                rows,
                figures: &[("calloc", "ns"), ("write", "ns"), ("free", "ns"), ("all", "ns")],
                takes: &["sizes", "lines"],
                ..carried(Program::parts())?
            }
        }
        "fork" => Preset {
            name: "fork",
            titles: &["fork: a process with memory idle"],
            note: "a fork, and a fork with its child's end".into(),
            labels: &["MiB freed"],
            rows: ["0", "1024"].map(|mib| (0, Row::new(&[mib], &[mib, "300"]))).into(),
            ways: two_threads(),
            figures: &[("fork", "us"), ("child gone", "us")],
            ..carried(Program::fork())?
        },
        "single" => Preset {
            name: "single",
            titles: &["single: libc in a program with one thread"],
            note: "a putc, and a malloc with its free of a small block".into(),
            rows: vec![(0, Row::new(&["one thread"], &[]))],
            ways: two_threads(),
            figures: &[("putc", "ns"), ("malloc and free", "ns")],
            ..carried(Program::single())?
        },
        "grow" => Preset {
            name: "grow",
            titles: &["grow: blocks that grow by realloc"],
            note: "all blocks from the first size to the last, the first time and again".into(),
            labels: &["blocks", "MiB from", "to", "percent", "times", "neighbours"],
            rows: lines(&GROWN),
            figures: &[("first", "ms"), ("again", "ms"), ("peak", "MiB")],
            ..carried(Program::grow())?
        },
        "small" => Preset {
            name: "small",
            titles: &["small: small blocks after a large one"],
            note: "a round that takes and frees all small blocks".into(),
            labels: &["MiB of small blocks", "MiB of the large one"],
            rows: lines(&SMALL),
            figures: &[("round", "us")],
            ..carried(Program::small())?
        },
        "thin" => Preset {
            name: "thin",
            titles: &["thin: blocks of which little is touched"],
            note: "calloc, touch and free, and what was resident at the peak".into(),
            labels: &["MiB", "touched of 1000", "pause, ms"],
            rows: lines(&THIN),
            figures: &[("block", "ms"), ("peak", "MiB")],
            ..carried(Program::thin())?
        },
        "verify" => {
            let ours = ours()?;
            let mode = |mode| ours.clone().with(mode, &[("PREZERO_VERIFY", mode)], &[]);
            Preset {
                name: "verify",
                titles: &["verify: a block that lies ready"],
                note: "calloc of 64 KiB, by how much of it is read back first".into(),
                labels: &["block"],
                rows: vec![(0, Row::new(&["64 KiB"], &["1000"]))],
                ways: ["off", "sample", "full"].map(mode).into(),
                figures: &[("calloc", "ns")],
                ..carried(Program::verify())?
            }
        }
        "short" => {
            let compiler = machine::output("g++", &["-print-prog-name=cc1plus"]).map(PathBuf::from);
            let compiler =
                compiler.filter(|path| path.is_file()).context("no g++; apt-get install g++")?;
            let scratch = Scratch::new()?;
            let [text, product] = ["short.cc", "short.s"].map(|name| scratch.file(name));
            std::fs::write(&text, TEXT)?;
            let (text, product) = (text.to_string_lossy(), product.to_string_lossy());
            let folder = format!("{}-linux-gnu", std::env::consts::ARCH);
            let arguments =
                ["-quiet", "-imultiarch", &folder, "-D_GNU_SOURCE", "-O2", &text, "-o", &product];
            let ours = ours()?;
            let library = ours.allocator.library.clone();
            let alone = |name: &str, knobs: &[(&str, &str)]| {
                let allocator = Allocator { library: library.clone(), ..Allocator::plain() };
                Way::of(&allocator).with(name, knobs, &[])
            };
            Preset {
                name: "short",
                titles: &["short: a compile that ends soon"],
                note: "cc1plus on a few lines that use the C++ library".into(),
                rows: vec![(0, Row::new(&["cc1plus"], &arguments))],
                ways: vec![
                    get(GLIBC).context("no glibc")?,
                    alone("library alone", &[]),
                    alone("no request reaches it", &[("PREZERO_THRESHOLD", "1G")]),
                    alone("never scrubs", &NEVER),
                    ours,
                ],
                reads: Reads::Spent,
                figures: &[("wall", "ms"), ("CPU", "ms")],
                ..base(Runs::Other(compiler, scratch))
            }
        }
        _ => bail!("{name}: no such preset"),
    };
    Ok((preset, field))
}
