//! Where an experiment runs: on the kernel as it is, under an allocator, under prezero, on a
//! lease, or elsewhere, from where its lines are brought.

use std::path::Path;
use std::process::{Command, Output, Stdio};

use anyhow::{Context, Result, bail, ensure};
use prezero_cli::companion;
use serde_json::Value;

use crate::broker::Broker;
use crate::peers::{Allocator, Field, GLIBC, NOWHERE, PREZERO};
use crate::worker::Program;

/// What every program has.
pub const KERNEL: &str = "kernel default";
/// `prezero run`.
pub const PROCESS: &str = "process (prezero)";
/// `prezero run --scrub-start never`.
pub const CONTROL: &str = "process, no scrubd";
/// `prezero claim`.
pub const HOST: &str = "host (prezerod)";

/// Where an experiment runs.
#[derive(Clone, Debug)]
pub struct Level {
    /// Its row.
    pub name: String,
    allocator: Allocator,
}

impl Level {
    /// The kernel alone, the peers, prezero without and with scrubd: those that are here.
    pub fn all(field: &Field) -> Vec<Level> {
        let mut levels = vec![Level { name: KERNEL.into(), allocator: Allocator::plain() }];
        for allocator in field.allocators.iter().filter(|each| each.name != GLIBC) {
            let level = |name: &str| Level { name: name.into(), allocator: allocator.clone() };
            if allocator.name == PREZERO {
                levels.push(level(CONTROL).with(&[("PREZERO_SCRUB_START", "never")]));
                levels.push(level(PROCESS));
            } else {
                levels.push(level(&allocator.name));
            }
        }
        levels
    }

    /// The same under another name and other settings.
    pub fn called(&self, name: &str, settings: &[(&str, &str)]) -> Level {
        let renamed = Level { name: name.into(), allocator: self.allocator.clone() };
        renamed.with(settings)
    }

    fn with(mut self, settings: &[(&str, &str)]) -> Level {
        let settings = settings.iter().map(|(name, value)| (name.to_string(), value.to_string()));
        self.allocator.environment.extend(settings);
        self
    }

    /// What the program says when it runs here.
    pub fn run(&self, program: &Program, arguments: &[&str]) -> Result<Value> {
        let mut command = self.allocator.command(&program.path(), Path::new(NOWHERE))?;
        command.args(arguments).arg("--json");
        one_line(&self.name, &mut command)
    }
}

/// What the program says with the broker's next lease of `mib` for its memory.
pub fn on_lease(
    broker: &Broker,
    mib: usize,
    program: &Program,
    arguments: &[&str],
) -> Result<Value> {
    broker.wait_for(1)?;
    let mut command = Command::new(companion::find(companion::PREZERO)?);
    command.arg("claim").arg("--socket").arg(broker.socket()).arg(format!("{mib}M")).arg("--");
    command.arg(program.path()).args(arguments).args(["--json", "--from", "{lease}"]);
    one_line(HOST, &mut command)
}

/// Runs it to its end. A figure that the program itself does not believe ends everything.
fn one_line(level: &str, command: &mut Command) -> Result<Value> {
    let output = command.stdin(Stdio::null()).output().with_context(|| level.to_string())?;
    let said = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_string();
    let Output { status, stdout, stderr } = output;
    ensure!(status.success(), "{level}: {} ({status})", said(&stderr));
    serde_json::from_slice(&stdout)
        .with_context(|| format!("{level}: not a line of JSON: {}", said(&stdout)))
}

/// Lines that the experiments' programs said elsewhere: in a guest, on a patched kernel.
#[derive(Clone, Debug)]
pub struct Elsewhere {
    /// Its row.
    pub name: String,
    /// The row that this one is compared with: of the same other machine, without the change that
    /// this row shows.
    pub base: Option<String>,
    lines: Vec<Value>,
}

impl Elsewhere {
    /// `NAME=FILE` or `NAME=FILE,BASE`, as `--add` has it.
    pub fn read(text: &str) -> Result<Vec<Elsewhere>> {
        let Some((name, files)) = text.split_once('=') else {
            bail!("--add {text}: give NAME=FILE or NAME=FILE,UNPATCHED");
        };
        let Some((file, base)) = files.split_once(',') else {
            return Ok(vec![Elsewhere::of(name.into(), files, None)?]);
        };
        let unpatched = format!("{name}, unpatched");
        let base = Elsewhere::of(unpatched.clone(), base, None)?;
        Ok(vec![base, Elsewhere::of(name.into(), file, Some(unpatched))?])
    }

    /// A line that is no JSON is the console's.
    fn of(name: String, file: &str, base: Option<String>) -> Result<Elsewhere> {
        let text = std::fs::read_to_string(file).with_context(|| format!("--add {file}"))?;
        let lines = text.lines().filter_map(|line| serde_json::from_str(line.trim()).ok());
        let ours = |line: &Value| line["experiment"].is_string();
        let lines: Vec<Value> = lines.filter(ours).collect();
        ensure!(
            !lines.is_empty(),
            "--add {file}: no line of an experiment; see bench/seeds/all.sh"
        );
        Ok(Elsewhere { name, base, lines })
    }

    /// The lines in which each of these is so.
    pub fn find(&self, wanted: &[(&str, Value)]) -> Vec<&Value> {
        let fits = |line: &&Value| wanted.iter().all(|(name, value)| line[*name] == *value);
        self.lines.iter().filter(fits).collect()
    }
}

/// A number of a line.
pub fn number(line: &Value, name: &str) -> Result<f64> {
    line[name].as_f64().with_context(|| format!("the experiment says nothing of {name}: {line}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_figure_that_the_program_does_not_believe_is_an_error() {
        let level = &Level::all(&Field::find(&[GLIBC.into()]).unwrap())[0];
        let faults = Program::faults().unwrap();
        for (program, arguments, told) in [
            (&faults, &["--reps", "0"][..], "nothing would be measured"),
            (&faults, &["--mib", "0"], "nothing would be measured"),
            (&Program::write().unwrap(), &["--loop", "0"], "nothing would be measured"),
            (&Program::lmbench().unwrap(), &["fork", "--runs", "0"], "nothing would be measured"),
            (&Program::resident().unwrap(), &["--mib", "1"], "nothing would be measured"),
            (
                &Program::resident().unwrap(),
                &["--smaps", "/proc/meminfo"],
                "says nothing of what is resident",
            ),
        ] {
            let error = level.run(program, arguments).unwrap_err();
            assert!(error.to_string().contains(told), "{arguments:?}: {error}");
        }
    }

    #[test]
    fn a_reading_that_stands_still_is_wrong() {
        let file = std::env::temp_dir().join(format!("prezero-smaps-{}", std::process::id()));
        std::fs::write(&file, "Rss:    1000 kB\n").unwrap();
        let level = &Level::all(&Field::find(&[GLIBC.into()]).unwrap())[0];
        let resident = Program::resident().unwrap();
        let error = level.run(&resident, &["--smaps", file.to_str().unwrap()]).unwrap_err();
        assert!(error.to_string().contains("wrong reading: 8192 KiB were written"), "{error}");
        std::fs::remove_file(file).unwrap();
    }

    #[test]
    fn memory_that_is_not_zero_is_told() {
        let file = std::env::temp_dir().join(format!("prezero-dirty-{}", std::process::id()));
        std::fs::write(&file, vec![7; 1 << 20]).unwrap();
        let level = &Level::all(&Field::find(&[GLIBC.into()]).unwrap())[0];
        let faults = Program::faults().unwrap();
        let from = file.to_str().unwrap();
        let error = level.run(&faults, &["--from", from, "--mib", "1", "--reps", "1"]).unwrap_err();
        assert!(error.to_string().contains("256 pages were not zero"), "{error}");
        std::fs::remove_file(file).unwrap();
    }

    #[test]
    fn lines_from_elsewhere_are_found_among_others() {
        let file = std::env::temp_dir().join(format!("prezero-lines-{}", std::process::id()));
        std::fs::write(&file, "booting\n{\"experiment\":\"write\",\"n\":1}\n{\"x\":2}\r\n")
            .unwrap();
        let read = |text: String| Elsewhere::read(&text);
        let guest = read(format!("guest={}", file.display())).unwrap().remove(0);
        assert_eq!(guest.base, None);
        let pair = read(format!("guest={0},{0}", file.display())).unwrap();
        let names: Vec<_> =
            pair.iter().map(|each| (each.name.as_str(), each.base.as_deref())).collect();
        assert_eq!(names, [("guest, unpatched", None), ("guest", Some("guest, unpatched"))]);
        assert_eq!(guest.find(&[("experiment", "write".into())]).len(), 1);
        assert_eq!(guest.find(&[("n", 2.into())]).len(), 0);
        std::fs::write(&file, "nothing").unwrap();
        let error = read(format!("guest={}", file.display())).unwrap_err();
        assert!(error.to_string().contains("no line of an experiment"), "{error}");
        std::fs::remove_file(file).unwrap();
    }
}
