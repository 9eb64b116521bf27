//! One run: a program from its start to its end, or a service from its start over its load to its stop.
//!
//! What the program prints goes nowhere, unless a figure is to be read from it; its last words are told where it
//! fails. A program runs in a group of its own, so that a service is stopped with all that it started.

use std::ffi::OsString;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicI32, Ordering::Relaxed};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use regex_lite::Regex;
use rustix::fs::{MemfdFlags, memfd_create};

use super::input::Input;
use super::way::Way;
use prezero_command::spent::{Spent, Started};

/// How long a service may take until its load succeeds, and until it has stopped.
const READY: Duration = Duration::from_secs(30);
const STOP: Duration = Duration::from_secs(10);
/// Between two tries of a load that fails: the service is not ready.
const RETRY: Duration = Duration::from_millis(100);
/// Bytes of a program's last words.
const LAST_WORDS: usize = 300;

/// Which figures are good.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub enum Better {
    /// A rate.
    More,
    /// A time, or a size.
    Less,
}

/// What is measured beside a run's time.
#[derive(Debug)]
pub struct Measured {
    /// Of a service: what loads it, for the shell.
    pub load: Option<String>,
    /// A figure that the load, or the program, prints.
    pub figure: Option<(Regex, Better)>,
    /// What each run reads.
    pub input: Input,
}

/// How a run ended.
#[derive(Debug)]
pub struct End {
    /// Its status.
    pub status: ExitStatus,
    /// Its last words, as the end of a sentence.
    pub said: String,
}

/// A run.
#[derive(Clone, Debug)]
pub struct Run {
    /// What the kernel says.
    pub spent: Spent,
    /// Of a service: how long its load took.
    pub load_s: Option<f64>,
    /// What was printed, if it is wanted.
    pub figure: Option<f64>,
    /// Its counters, if it was asked for them and had any.
    pub stats: Option<serde_json::Value>,
}

/// The group that runs; 0: none.
static GROUP: AtomicI32 = AtomicI32::new(0);

/// Passes a signal on to what runs. May be called in a handler.
pub fn pass_on(which: i32) {
    let group = GROUP.load(Relaxed);
    if group > 0 {
        signal(group, which);
    }
}

/// Signals a group, if there is one.
fn signal(group: i32, which: i32) {
    // SAFETY: no terms. The group is of a child of ours; if all of it has ended no group has that number.
    unsafe { libc::kill(-group, which) };
}

impl Measured {
    /// Runs a program once. `counts`: whether its counters are wanted.
    ///
    /// # Errors
    /// It cannot be started, is ended by a signal, or its figure is not there.
    pub fn once(&self, way: Way, program: &[OsString], counts: bool) -> Result<(Run, End)> {
        let [out, words, stats] = [(); 3].map(|()| scratch());
        let (mut out, mut words, mut stats) = (out?, words?, stats?);
        let file = if counts { path(&stats) } else { "off".into() };
        let mut command = way.command(program, &file)?;
        let own_output = self.figure.is_some() && self.load.is_none();
        command.stdout(if own_output { out.try_clone()?.into() } else { Stdio::null() });
        command.stderr(words.try_clone()?).stdin(self.input.again()?).process_group(0);
        let started = Started::start(&mut command)
            .with_context(|| format!("{} cannot be started", program[0].display()))?;
        GROUP.store(started.pid(), Relaxed);
        let outcome = match &self.load {
            None => started.end().map(|end| (end, None)).map_err(Into::into),
            Some(load) => self.serve(&started, load, &mut out),
        };
        GROUP.store(0, Relaxed);
        let ((spent, status), load_s) =
            outcome.with_context(|| format!("{}: {}", way.name(), last_words(&mut words)))?;
        let said = last_words(&mut words);
        if self.load.is_none() && status.code().is_none() && !super::turns::interrupted() {
            bail!("{}: {status}; {said}", way.name());
        }
        let figure = match &self.figure {
            Some((regex, _)) => Some(
                figure(regex, &read(&mut out))
                    .with_context(|| format!("{}: {status}; {said}", way.name()))?,
            ),
            None => None,
        };
        let stats = serde_json::from_str(&read(&mut stats)).ok();
        Ok((Run { spent, load_s, figure, stats }, End { status, said }))
    }

    /// Loads a service and stops it.
    fn serve(
        &self,
        started: &Started,
        load: &str,
        out: &mut File,
    ) -> Result<((Spent, ExitStatus), Option<f64>)> {
        let outcome = loaded(started, load, out);
        // Whatever came of it, the service goes.
        signal(started.pid(), libc::SIGTERM);
        let end = match started.end_within(STOP)? {
            Some(end) => Some(end),
            None => {
                signal(started.pid(), libc::SIGKILL);
                started.end_within(STOP)?
            }
        };
        let load_s = outcome?;
        Ok((end.context("the service does not end")?, Some(load_s)))
    }
}

/// Runs the load until it succeeds: how long it took then.
fn loaded(started: &Started, load: &str, out: &mut File) -> Result<f64> {
    let until = Instant::now() + READY;
    loop {
        out.set_len(0)?;
        out.seek(SeekFrom::Start(0))?;
        let began = Instant::now();
        let mut shell = Command::new("/bin/sh");
        shell.args(["-c", load]).stdout(out.try_clone()?).stdin(Stdio::null());
        let output = shell.stderr(Stdio::piped()).output()?;
        if output.status.success() {
            return Ok(began.elapsed().as_secs_f64());
        }
        let said = String::from_utf8_lossy(&output.stderr);
        let said = said.trim().lines().next_back().unwrap_or("it said nothing").to_string();
        ensure!(!super::turns::interrupted(), "interrupted");
        if Instant::now() >= until {
            bail!("--measure {load}: {}: {said}", output.status);
        }
        if let Some((_, status)) = started.end_within(RETRY)? {
            bail!("the service ended before its load succeeded: {status}");
        }
    }
}

/// The number in the last place that fits.
fn figure(regex: &Regex, text: &str) -> Result<f64> {
    let found = regex.captures_iter(text).last().and_then(|groups| groups.get(1));
    let found = found.with_context(|| {
        let said = text.trim().lines().next_back().unwrap_or("nothing");
        format!("--figure {}: not in what it printed, which ends in: {said}", regex.as_str())
    })?;
    let number = found.as_str().replace(',', "").parse::<f64>();
    let number = number.ok().filter(|number| number.is_finite() && *number > 0.0);
    number.with_context(|| format!("--figure: {} is no number above 0", found.as_str()))
}

/// A file without a name.
pub fn scratch() -> Result<File> {
    let file = memfd_create("prezero-try", MemfdFlags::CLOEXEC).context("memfd_create")?;
    Ok(file.into())
}

/// By which a program of the same user opens our file.
fn path(file: &File) -> String {
    use std::os::fd::AsRawFd;
    format!("/proc/{}/fd/{}", std::process::id(), file.as_raw_fd())
}

fn read(file: &mut File) -> String {
    let mut bytes = vec![];
    let _ = file.seek(SeekFrom::Start(0));
    let _ = file.read_to_end(&mut bytes);
    String::from_utf8_lossy(&bytes).into_owned()
}

fn last_words(file: &mut File) -> String {
    let text = read(file);
    let text = text.trim();
    let from = text.char_indices().rev().nth(LAST_WORDS).map_or(0, |(at, _)| at);
    if text.is_empty() { "it said nothing".into() } else { format!("it said: {}", &text[from..]) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_figure_is_the_last_that_fits_and_a_number() {
        let regex = Regex::new("took ([0-9.,]+)").unwrap();
        assert_eq!(figure(&regex, "took 1.5\ntook 2,048.25 ms\n").unwrap(), 2048.25);
        let told = |text| figure(&regex, text).unwrap_err().to_string();
        assert!(told("a\nnever mind\n").ends_with("which ends in: never mind"));
        assert!(told("took ...").ends_with("... is no number above 0"));
        assert!(told("took 0").ends_with("0 is no number above 0"));
    }

    fn once(measured: &Measured, script: &str) -> Result<(Run, End)> {
        measured.once(Way::Plain, &["sh", "-c", script].map(OsString::from), true)
    }

    #[test]
    fn a_program_prints_its_own_figure_and_its_last_words_are_told() {
        let figure = Some((Regex::new("at ([0-9]+)").unwrap(), Better::More));
        let own = Measured { load: None, figure, input: Input::default() };
        let (run, end) = once(&own, "echo at 17; echo oh no >&2; exit 3").unwrap();
        assert_eq!((run.figure, end.status.code()), (Some(17.0), Some(3)));
        assert_eq!(end.said, "it said: oh no");
        assert!(run.stats.is_none() && run.load_s.is_none());
        let error = format!("{:#}", once(&own, "echo oh no >&2; kill -9 $$").unwrap_err());
        assert!(error.contains("plain: signal: 9") && error.ends_with("it said: oh no"), "{error}");
    }

    #[test]
    fn a_service_is_loaded_when_it_is_ready_and_stopped() {
        let file = std::env::temp_dir().join(format!("prezero-try-{}", std::process::id()));
        let name = file.display();
        let service = format!("sleep 0.2; : >{name}; sleep 1000 & wait");
        let load = Some(format!("test -e {name} && echo 7 a second"));
        let figure = Some((Regex::new("([0-9]+) a second").unwrap(), Better::More));
        let input = Input::default;
        let (run, end) = once(&Measured { load, figure, input: input() }, &service).unwrap();
        std::fs::remove_file(&file).unwrap();
        assert_eq!(run.figure, Some(7.0));
        assert!(run.load_s.is_some() && !end.status.success(), "it was ended: {end:?}");
        let load = Measured { load: Some("true".into()), figure: None, input: input() };
        assert!(once(&load, "exit 0").is_ok(), "the load may be over before the service ends");
        let never = Measured { load: Some("false".into()), figure: None, input: input() };
        let error = format!("{:#}", once(&never, "exit 4").unwrap_err());
        assert!(error.contains("ended before its load succeeded: exit status: 4"), "{error}");
    }
}
