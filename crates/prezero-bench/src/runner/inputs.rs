//! What programs work on: files of `bench/` that the command carries, and text that is made here, the same each time.

use std::cell::RefCell;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use prezero_command::program;

use crate::scratch::Scratch;
use crate::worker::Program;

macro_rules! files {
    ($($name:literal: $path:literal),* $(,)?) => {
        /// Files, by their names in an argument.
        const FILES: &[(&str, &[u8])] =
            &[$(($name, include_bytes!(concat!("../../../../bench/", $path)))),*];
    };
}

files! {
    "python.py": "real/python.py",
    "arrays.js": "real/arrays.js",
    "queries.sql": "real/queries.sql",
    "templates.cc": "real/templates.cc",
    "short.cc": "programs/short.cc",
    "numpy_rounds.py": "numpy_rounds.py",
    "numpy_small.py": "numpy_small.py",
    "ready.py": "ready.py",
    "dpdk.sh": "dpdk.sh",
    "limited.sh": "limited.sh",
    "fill.py": "fill.py",
    "waste.py": "waste.py",
}

/// The library that passes each call on.
const PASSES_ON: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/passes_on.so"));
/// Of the text that is compressed.
const EXTRACT_BYTES: u64 = 8 << 20;

/// The inputs, in a directory of their own, and programs that run.
pub struct Inputs {
    scratch: Scratch,
    text_bytes: u64,
    python: Option<PathBuf>,
    carried: RefCell<Vec<(String, Program)>>,
}

impl Inputs {
    pub fn new(text_mib: u64, python: Option<PathBuf>) -> Result<Inputs> {
        Ok(Inputs {
            scratch: Scratch::new()?,
            text_bytes: text_mib << 20,
            python,
            carried: RefCell::default(),
        })
    }

    /// A word of an argument with files in place of their names.
    ///
    /// # Errors
    /// One cannot be written.
    pub fn filled(&self, word: &str) -> Result<String> {
        let Some((before, rest)) = word.split_once('{') else { return Ok(word.into()) };
        let Some((name, after)) = rest.split_once('}') else { return Ok(word.into()) };
        Ok(match self.file(name)? {
            Some(file) => format!("{before}{}{}", file.display(), self.filled(after)?),
            None => format!("{before}{{{name}}}{}", self.filled(after)?),
        })
    }

    /// A file; `None` if no file is called so.
    pub fn file(&self, name: &str) -> Result<Option<PathBuf>> {
        if let Some(name) =
            name.strip_suffix(".c").filter(|name| ["lease", "disturb", "waste"].contains(name))
        {
            return self.carried(name).map(Some);
        }
        let path = self.scratch.file(name);
        let carried = FILES.iter().find(|(known, _)| *known == name).map(|(_, bytes)| *bytes);
        let carried = carried.or((name == "passes_on.so").then_some(PASSES_ON));
        match name {
            "out" => return Ok(Some(path)),
            _ if path.exists() => {}
            "text" => {
                write_text(&path, self.text_bytes).context("set TMPDIR to where there is room")?
            }
            "extract" => write_text(&path, EXTRACT_BYTES)?,
            _ => match carried {
                Some(bytes) => {
                    std::fs::write(&path, bytes).with_context(|| path.display().to_string())?
                }
                None => return Ok(None),
            },
        }
        Ok(Some(path))
    }

    /// The program that a case names; an error says what to install.
    pub fn program(&self, named: &str) -> Result<PathBuf> {
        let Some((name, package)) = named.split_once('@') else { return self.carried(named) };
        if name == "python" {
            return self.python_with(package);
        }
        // Beside this program, too: an example that was built with it.
        let beside = std::env::current_exe().ok().and_then(|own| Some(own.parent()?.join(name)));
        let beside = beside.filter(|file| file.is_file());
        let found = beside.or_else(|| program::find(name.as_ref(), std::env::var_os("PATH")).ok());
        let mend = if package.contains(' ') { String::new() } else { "apt-get install ".into() };
        found.with_context(|| format!("{name} is not here; {mend}{package}"))
    }

    /// `bench/NAME.c`, for as long as these inputs.
    fn carried(&self, name: &str) -> Result<PathBuf> {
        let mut all = self.carried.borrow_mut();
        if let Some((_, program)) = all.iter().find(|(known, _)| known == name) {
            return Ok(program.path());
        }
        let program = Program::find(name)?;
        let path = program.path();
        all.push((name.into(), program));
        Ok(path)
    }

    /// A Python that has a module, `MODULE=PACKAGE` where pip calls it otherwise.
    fn python_with(&self, named: &str) -> Result<PathBuf> {
        let (module, package) = named.split_once('=').unwrap_or((named, named));
        if let Some(python) = &self.python {
            let shown = python.display();
            ensure!(imports(python, "sys"), "--python {shown}: it is no Python");
            let mend = || format!("{shown} has no {module}; {shown} -m pip install {package}");
            return imports(python, module).then(|| python.clone()).with_context(mend);
        }
        let known = ["python3", "/usr/bin/python3", ".venv/bin/python3"].map(PathBuf::from);
        let found = known.into_iter().find(|python| imports(python, module));
        let mend =
            || format!("no Python has {module}; pip install {package}, or give --python PATH");
        found.with_context(mend)
    }
}

fn imports(python: &Path, module: &str) -> bool {
    let import = Command::new(python).args(["-c", &format!("import {module}")]).output();
    import.is_ok_and(|output| output.status.success())
}

/// Lines of 8 to 71 small letters, by Marsaglia's xorshift.
fn write_text(file: &Path, bytes: u64) -> std::io::Result<()> {
    let mut out = BufWriter::new(File::create(file)?);
    let (mut state, mut written) = (0x9e37_79b9_7f4a_7c15u64, 0);
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state >> 8
    };
    while written < bytes {
        let length = 8 + next() % 64;
        let mut line: Vec<u8> = (0..length).map(|_| b'a' + (next() % 26) as u8).collect();
        line.push(b'\n');
        out.write_all(&line)?;
        written += line.len() as u64;
    }
    out.flush()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::{CASES, Listed};

    #[test]
    fn every_file_that_a_case_names_is_made_and_text_is_the_same_each_time() {
        let inputs = Inputs::new(1, None).unwrap();
        let text = inputs.file("text").unwrap().unwrap();
        let first = std::fs::read(&text).unwrap();
        write_text(&text, 1 << 20).unwrap();
        assert!(first.len() >= 1 << 20 && first.len() < (1 << 20) + 80 && first.ends_with(b"\n"));
        assert!(first == std::fs::read(&text).unwrap());
        for row in CASES
            .benchmarks
            .values()
            .flat_map(|case| &case.sheet)
            .flat_map(|sheet| &sheet.program.rows)
        {
            let Listed::Said { arguments, stdin, .. } = row else { continue };
            for word in arguments
                .split_whitespace()
                .filter(|word| word.contains('.') && word.starts_with('{'))
            {
                assert_ne!(inputs.filled(word).unwrap(), word);
            }
            assert!(stdin.as_ref().is_none_or(|name| inputs.file(name).unwrap().is_some()));
        }
        assert_eq!(inputs.filled("[a]{5}[x]").unwrap(), "[a]{5}[x]");
    }

    #[test]
    fn a_program_that_is_missing_comes_with_its_mend() {
        let error = |python: &str, named: &str| {
            let python =
                Some(python.into()).filter(|python: &PathBuf| !python.as_os_str().is_empty());
            Inputs::new(1, python).unwrap().program(named).unwrap_err().to_string()
        };
        assert_eq!(
            error("", "no-such-command@nopackage"),
            "no-such-command is not here; apt-get install nopackage"
        );
        assert!(error("", "python@no_such_module").contains("pip install no_such_module"));
        assert!(error("", "python@no_such_module=that").contains("pip install that"));
        // What a user names has to be a Python; a module that it lacks leaves a row out.
        assert!(error("/bin/false", "python@numpy").starts_with("--python /bin/false: "));
        assert!(error("python3", "python@no_such_module").starts_with("python3 has no "));
    }
}
