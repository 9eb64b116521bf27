//! The programs of `prezero bench real`: which they are, what they need, what they work on.
//!
//! The programs are other people's, as their packages bring them; what they work on is made
//! here, the same each time: text from a generator, and the scripts of `bench/real/`.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result};
use prezero_cli::program;

use crate::scratch::Scratch;

/// One program and its work. In `arguments`, `{NAME}` is the path of an input or of the
/// scratch directory (`{out}` is a file in it).
#[derive(Clone, Copy, Debug)]
pub struct Program {
    /// Its row.
    pub name: &'static str,
    /// What it does, and in which language it is written, for people.
    pub about: &'static str,
    /// What starts it.
    pub starts: Starts,
    /// Its command line.
    pub arguments: &'static [&'static str],
    /// What it reads from its standard input; empty for nothing.
    pub stdin: &'static str,
}

/// What a program is started with.
#[derive(Clone, Copy, Debug)]
pub enum Starts {
    /// A command on the path, and the Debian package that brings it.
    Command(&'static str, &'static str),
    /// A Python with this module.
    Python(&'static str),
}

/// All of them, in the order of the table.
pub const PROGRAMS: [Program; 9] = [
    Program {
        name: "ndimage",
        about: "Python, SciPy: filters, labels, zoom of a 2500 x 2500 image (bench/real/images.py)",
        starts: Starts::Python("scipy"),
        arguments: &["{images.py}"],
        stdin: "",
    },
    Program {
        name: "sparse",
        about: "Python, SciPy: sparse to dense, histograms, block matrices (bench/real/sparse.py)",
        starts: Starts::Python("scipy"),
        arguments: &["{sparse.py}"],
        stdin: "",
    },
    Program {
        name: "pandas",
        about: "Python: group, pivot, merge, sort 800,000 records (bench/real/frames.py)",
        starts: Starts::Python("pandas"),
        arguments: &["{frames.py}"],
        stdin: "",
    },
    Program {
        name: "node",
        about: "C++: zlib, typed arrays, JSON (bench/real/arrays.js)",
        starts: Starts::Command("node", "nodejs"),
        arguments: &["{arrays.js}"],
        stdin: "",
    },
    Program {
        name: "sort",
        about: "C: the lines of the text, by bytes",
        starts: Starts::Command("sort", "coreutils"),
        arguments: &["-o", "{out}", "{text}"],
        stdin: "",
    },
    Program {
        name: "sqlite",
        about: "C: fill, index, join, group, update in memory (bench/real/queries.sql)",
        starts: Starts::Command("sqlite3", "sqlite3"),
        arguments: &[":memory:"],
        stdin: "queries.sql",
    },
    Program {
        name: "g++",
        about: "C++: g++ -O2 -c of the C++ library's templates (bench/real/templates.cc)",
        starts: Starts::Command("g++", "g++"),
        arguments: &["-O2", "-c", "-o", "{out}", "{templates.cc}"],
        stdin: "",
    },
    Program {
        name: "xz",
        about: "C: xz -1 with two threads, 8 MiB of the text",
        starts: Starts::Command("xz", "xz-utils"),
        arguments: &["-T2", "-1", "--block-size=2MiB", "-k", "-c", "{extract}"],
        stdin: "",
    },
    Program {
        name: "ripgrep",
        about: "Rust: lines of the text that match [aeiou]{5}[xyz]",
        starts: Starts::Command("rg", "ripgrep"),
        arguments: &["-c", "[aeiou]{5}[xyz]", "{text}"],
        stdin: "",
    },
];

/// What the programs work on.
const SCRIPTS: [(&str, &str); 6] = [
    ("images.py", include_str!("../../../../../bench/real/images.py")),
    ("sparse.py", include_str!("../../../../../bench/real/sparse.py")),
    ("frames.py", include_str!("../../../../../bench/real/frames.py")),
    ("arrays.js", include_str!("../../../../../bench/real/arrays.js")),
    ("queries.sql", include_str!("../../../../../bench/real/queries.sql")),
    ("templates.cc", include_str!("../../../../../bench/real/templates.cc")),
];
/// The library that passes each call on.
const PASSES_ON: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/passes_on.so"));
/// Of the text that is compressed.
const EXTRACT_BYTES: u64 = 8 << 20;

/// The inputs, in a directory of their own.
#[derive(Debug)]
pub struct Inputs(Scratch);

impl Inputs {
    /// Makes them; the text has `text_bytes`.
    pub fn make(text_bytes: u64) -> Result<Inputs> {
        let scratch = Scratch::new()?;
        for (name, script) in SCRIPTS {
            std::fs::write(scratch.file(name), script).context(name)?;
        }
        std::fs::write(scratch.file("passes_on.so"), PASSES_ON).context("passes_on.so")?;
        for (name, bytes) in [("text", text_bytes), ("extract", EXTRACT_BYTES)] {
            let file = scratch.file(name);
            write_text(&file, bytes).with_context(|| {
                format!("{}: set TMPDIR to where there is room", file.display())
            })?;
        }
        Ok(Inputs(scratch))
    }

    /// `bench/passes_on.c`, unpacked.
    pub fn passes_on(&self) -> PathBuf {
        self.file("passes_on.so")
    }

    /// A file among them.
    pub fn file(&self, name: &str) -> PathBuf {
        self.0.file(name)
    }

    fn fill(&self, argument: &str) -> PathBuf {
        match argument.strip_prefix('{').and_then(|rest| rest.strip_suffix('}')) {
            Some(name) => self.file(name),
            None => argument.into(),
        }
    }
}

/// Lines of 8 to 71 small letters, the same for the same length.
fn write_text(file: &Path, bytes: u64) -> std::io::Result<()> {
    let mut out = BufWriter::new(File::create(file)?);
    let (mut state, mut written) = (0x9e37_79b9_7f4a_7c15u64, 0);
    let mut line = Vec::with_capacity(80);
    while written < bytes {
        line.clear();
        let length = 8 + next(&mut state) % 64;
        line.extend((0..length).map(|_| b'a' + (next(&mut state) % 26) as u8));
        line.push(b'\n');
        out.write_all(&line)?;
        written += line.len() as u64;
    }
    out.flush()
}

/// Marsaglia's xorshift: good enough for letters.
fn next(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state >> 8
}

impl Program {
    /// What starts it; else one line that says what to install. `python` comes before those
    /// that are found.
    pub fn find(&self, python: Option<&Path>) -> Result<PathBuf, String> {
        match self.starts {
            Starts::Command(name, package) => {
                let found = program::find(name.as_ref(), std::env::var_os("PATH"));
                found.map_err(|_| format!("apt-get install {package}"))
            }
            Starts::Python(module) => {
                let known = ["python3", "/usr/bin/python3", ".venv/bin/python3"].map(PathBuf::from);
                let known = python.map(PathBuf::from).into_iter().chain(known);
                let mend = || {
                    let python = python.map_or("python3".into(), |path| path.to_string_lossy());
                    format!("{python} -m pip install {module}, or give --python PATH")
                };
                known.into_iter().find(|python| imports(python, module)).ok_or_else(mend)
            }
        }
    }

    /// Its arguments and its standard streams: its output is dropped.
    pub fn dress(&self, command: &mut Command, inputs: &Inputs) -> Result<()> {
        command.args(self.arguments.iter().map(|argument| inputs.fill(argument)));
        let stdin = match self.stdin {
            "" => Stdio::null(),
            name => File::open(inputs.file(name)).context(name)?.into(),
        };
        command.stdin(stdin).stdout(Stdio::null()).stderr(Stdio::null());
        // The order of lines and letters must be the same on each machine.
        command.env("LC_ALL", "C").env("PYTHONHASHSEED", "0");
        Ok(())
    }
}

fn imports(python: &Path, module: &str) -> bool {
    let import = Command::new(python).args(["-c", &format!("import {module}")]).output();
    import.is_ok_and(|output| output.status.success())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_the_same_each_time_and_as_long_as_asked() {
        let inputs = Inputs::make(5000).unwrap();
        let first = std::fs::read(inputs.file("text")).unwrap();
        write_text(&inputs.file("text"), 5000).unwrap();
        assert!(first.len() >= 5000 && first.len() < 5100 && first.ends_with(b"\n"));
        assert_eq!(first, std::fs::read(inputs.file("text")).unwrap());
    }

    #[test]
    fn every_input_that_a_program_names_is_made() {
        let inputs = Inputs::make(100).unwrap();
        for program in PROGRAMS {
            let named = program.arguments.iter().filter_map(|argument| {
                argument.strip_prefix('{').and_then(|rest| rest.strip_suffix('}'))
            });
            for name in named.chain([program.stdin]).filter(|name| !["", "out"].contains(name)) {
                assert!(inputs.file(name).is_file(), "{}: {name}", program.name);
            }
        }
    }

    #[test]
    fn a_missing_program_comes_with_its_mend() {
        let program =
            Program { starts: Starts::Command("no-such-command", "nopackage"), ..PROGRAMS[4] };
        assert_eq!(program.find(None), Err("apt-get install nopackage".into()));
        let program = Program { starts: Starts::Python("no_such_module"), ..program };
        assert!(
            program.find(None).unwrap_err().starts_with("python3 -m pip install no_such_module")
        );
    }
}
