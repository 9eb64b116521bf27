//! From what a sheet says to rows and ways: words are filled in, programs are found, arms are looked up.

use std::path::PathBuf;

use anyhow::{Result, bail};
use prezero::Size;
use prezero_command::companion;

use super::contest::{Row, Way};
use super::inputs::Inputs;
use super::options::Options;
use crate::peers::{Allocator, Field, GLIBC, PREZERO};
use crate::table::{self, Arm, Benchmark, CASES, Said, Sheet, Words, filled};

/// Marks a build of prezero that `--also` names.
const ALSO: &str = "--also ";

/// A row, and the ways in which it runs.
pub struct Planned {
    pub row: Row,
    pub ways: Vec<Way>,
    pub runs: usize,
    /// Leases that are to lie ready.
    pub keep: u64,
}

/// What `--only` can name.
pub fn names(case: &Benchmark) -> Vec<String> {
    let mut names: Vec<String> = vec![];
    for sheet in &case.sheet {
        let rows = sheet.program.rows.iter().map(|row| row.of(sheet.labels.len())[0].clone());
        let all = if sheet.name.is_empty() { rows.collect() } else { vec![sheet.name.clone()] };
        names.extend(all);
    }
    names.dedup();
    names
}

/// What a row says before anything is looked up.
struct Point<'a> {
    of: Vec<String>,
    words: Words,
    program: &'a str,
    arguments: String,
    stdin: Option<&'a str>,
    arms: &'a [Arm],
    runs: Option<usize>,
}

/// What all rows of a case share.
pub struct Plan<'a> {
    case: &'static Benchmark,
    options: &'a Options,
    field: &'a Field,
    runs: usize,
    inputs: Inputs,
    /// What was left out, and why.
    pub notes: Vec<String>,
}

impl<'a> Plan<'a> {
    pub fn new(
        case: &'static Benchmark,
        options: &'a Options,
        field: &'a Field,
        runs: usize,
    ) -> Result<Plan<'a>> {
        let text_mib = options.number("text-mib").unwrap_or(1.0) as u64;
        let inputs = Inputs::new(text_mib, options.first("python").map(PathBuf::from))?;
        Ok(Plan { case, options, field, runs, inputs, notes: vec![] })
    }

    /// The rows that are asked for.
    pub fn rows(&mut self, sheet: &'static Sheet) -> Result<Vec<Planned>> {
        let rows = sheet.program.rows.clone();
        let points = match sheet.program.axes.is_empty() {
            true => self.listed(sheet, &rows)?,
            false => self.crossed(sheet)?,
        };
        let mut planned = vec![];
        for point in points {
            planned.extend(self.planned(sheet, point)?);
        }
        Ok(planned)
    }

    fn listed<'r>(&self, sheet: &'r Sheet, rows: &'r [table::Listed]) -> Result<Vec<Point<'r>>> {
        let mut points = vec![];
        let plain = |of, words, arguments| Point {
            of,
            words,
            program: &sheet.program.named,
            arguments,
            stdin: None,
            arms: &sheet.program.arms,
            runs: None,
        };
        let row_of = |text: &str| {
            let own = if sheet.program.arguments.is_none() { text } else { "" };
            let words = Words::from([("row".into(), text.into())]);
            plain(table::Listed::Words(text.into()).of(sheet.labels.len()), words, own.into())
        };
        let named = self.options.all("only");
        if sheet.program.any && !named.is_empty() {
            return Ok(named.iter().map(|name| row_of(name)).collect());
        }
        for row in rows {
            let of = row.of(sheet.labels.len());
            if sheet.name.is_empty() && !self.options.wants(&of[0]) {
                continue;
            }
            points.push(match row {
                table::Listed::Words(text) => row_of(text),
                table::Listed::Said { program, arguments, stdin, runs, arms, .. } => {
                    let point = plain(of, Words::new(), arguments.clone());
                    Point {
                        program: program.as_deref().unwrap_or(point.program),
                        stdin: stdin.as_deref(),
                        arms: arms.as_deref().unwrap_or(point.arms),
                        runs: *runs,
                        ..point
                    }
                }
            });
        }
        Ok(points)
    }

    /// Every value of each axis meets every other.
    fn crossed<'r>(&self, sheet: &'r Sheet) -> Result<Vec<Point<'r>>> {
        let program = &sheet.program;
        let mut points = vec![(vec![], Words::new())];
        for axis in &program.axes {
            let mut more = vec![];
            for (of, words) in points {
                for value in self.options.all(axis) {
                    let (mut of, mut words): (Vec<String>, Words) = (of.clone(), words.clone());
                    words.insert(axis.clone(), value.clone());
                    words.extend(self.case.values.get(value).cloned().unwrap_or_default());
                    let mut label = value.clone();
                    if axis == "sizes" {
                        let bytes = table::bytes(value)? / if program.half { 2 } else { 1 };
                        label = Size(bytes).to_string();
                        words.insert("bytes".into(), bytes.to_string());
                        words.insert("mib".into(), (bytes >> 20).to_string());
                    }
                    of.push(label);
                    more.push((of, words));
                }
            }
            points = more;
        }
        let point = |(of, words)| Point {
            of,
            words,
            program: &program.named,
            arguments: String::new(),
            stdin: None,
            arms: &program.arms,
            runs: None,
        };
        Ok(points.into_iter().map(point).collect())
    }

    /// A row with its ways; `None`: its program is not here.
    fn planned(&mut self, sheet: &Sheet, point: Point<'_>) -> Result<Option<Planned>> {
        let mut words = point.words;
        for name in self.case.options.keys() {
            let value = self.options.first(name).unwrap_or_default();
            words.entry(name.clone()).or_insert_with(|| value.into());
        }
        if let Some(size) = &sheet.program.bytes {
            words.insert("bytes".into(), table::bytes(&filled(size, &words))?.to_string());
        }
        if let Ok(prezero) = companion::find(companion::PREZERO) {
            words.insert("prezero".into(), prezero.display().to_string());
        }
        let program = match self.inputs.program(&filled(point.program, &words)) {
            Ok(program) => program,
            // What the user names has to be there; other programs are left out, and why is said.
            Err(why) if why.to_string().starts_with("--") => bail!(why),
            Err(why) => {
                self.notes.push(format!("left out: {}: {why:#}", point.of.join(" ")));
                return Ok(None);
            }
        };
        let given = sheet.program.arguments.as_deref().unwrap_or_default();
        let arguments = self.words(&[given, &point.arguments].join(" "), &words)?;
        let stdin = point.stdin.map(|name| self.inputs.file(name)).transpose()?.flatten();
        let bytes = words.get("bytes").and_then(|bytes| bytes.parse().ok()).unwrap_or(0);
        let row = Row { of: point.of, program, arguments, stdin, bytes };
        let mut ways = vec![];
        for said in self.arms(point.arms) {
            ways.extend(
                self.way(
                    Said { pages: said.pages.or(sheet.program.pages.clone()), ..said },
                    &words,
                )?,
            );
        }
        let base = sheet.asked.base.as_deref();
        // What the others are compared with comes first.
        ways.sort_by_key(|way: &Way| Some(&*way.name) != base);
        let own = point.runs.or(sheet.program.runs);
        // One run is what such a row is; of others the user says how many.
        let runs = self.options.runs.filter(|_| own != Some(1)).or(own).unwrap_or(self.runs);
        Ok(Some(Planned { row, ways, runs, keep: sheet.program.keep.unwrap_or(1) }))
    }

    fn words(&self, text: &str, words: &Words) -> Result<Vec<String>> {
        text.split_whitespace().map(|word| self.inputs.filled(&filled(word, words))).collect()
    }

    /// Those of a row, with those that stand for several in their places, and builds that the user names.
    fn arms(&self, arms: &[Arm]) -> Vec<Said> {
        let peers = |but: &[&str]| -> Vec<Said> {
            let names = self.field.allocators.iter().map(|each| &each.name);
            let names = names.filter(|name| !but.contains(&name.as_str()));
            names.map(|name| CASES.arm(&Arm::Named(name.clone()))).collect()
        };
        let each = arms.iter().flat_map(|arm| match arm {
            Arm::Named(name) if name == "peers" => peers(&[]),
            Arm::Named(name) if name == "others" => peers(&[GLIBC, PREZERO]),
            arm => vec![CASES.arm(arm)],
        });
        let also = self.options.also.iter().map(|path| Said {
            name: format!("{ALSO}{path}"),
            of: PREZERO.into(),
            ..Said::default()
        });
        let without = self.options.ablate.iter().map(|names| Said {
            name: format!("without {names}"),
            of: PREZERO.into(),
            environment: [("PREZERO_ABLATE".into(), names.replace('+', ","))].into(),
            ..Said::default()
        });
        each.chain(also).chain(without).collect()
    }

    /// An arm as a way; `None`: its allocator is not here.
    fn way(&self, said: Said, words: &Words) -> Result<Option<Way>> {
        let find = |name: &str| self.field.allocators.iter().find(|each| each.name == name);
        let allocator = match said.of.as_str() {
            GLIBC => Some(Allocator::plain()),
            "library" => find(PREZERO)
                .map(|ours| Allocator { library: ours.library.clone(), ..Allocator::plain() }),
            name => find(name).cloned(),
        };
        let Some(mut allocator) = allocator else { return Ok(None) };
        for (name, value) in &said.environment {
            let value = self.inputs.filled(&filled(value, words))?;
            allocator.environment.push((name.clone(), value));
        }
        let also = said.name.strip_prefix(ALSO).map(PathBuf::from);
        // With a slash in it, or the path would be searched.
        let prezero = also.map(std::path::absolute).transpose()?;
        let [backing, pages] = [&said.backing, &said.pages]
            .map(|text| text.as_deref().map(|text| filled(text, words)));
        Ok(Some(Way {
            name: said.name.trim_start_matches(ALSO).into(),
            prezero,
            arguments: self.words(&said.arguments, words)?,
            said: Said { backing, pages, ..said },
            ..Way::of(&allocator)
        }))
    }
}
