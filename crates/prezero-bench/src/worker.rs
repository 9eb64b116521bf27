//! The workers: C programs, most of them one long-lived process for each allocator, driven
//! by lines on its stdin and stdout.

use std::ffi::CString;
use std::fs::File;
use std::io::{BufRead, BufReader, Seek, Write};
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use anyhow::{Context, Result, bail, ensure};

use super::peers::Allocator;

/// A compiled worker, which the command carries, as a program that can be started, in
/// memory: no place on disk to write to or to leave behind.
#[derive(Debug)]
pub struct Program(File);

/// Workers that the build script compiled.
const WORKERS: &[(&str, &[u8])] = include!(concat!(env!("OUT_DIR"), "/workers.rs"));

impl Program {
    /// Unpacks `bench/NAME.c`.
    pub fn find(name: &str) -> Result<Program> {
        let found = WORKERS.iter().find(|(known, _)| *known == name);
        let (_, binary) = found.with_context(|| format!("{name}: no such program of bench/"))?;
        let name = CString::new(name)?;
        // Without close-on-exec: `prezero run` execs it by the descriptor's number.
        // SAFETY: the name ends in NUL; the call makes a new descriptor or fails.
        let fd = unsafe { libc::memfd_create(name.as_ptr(), 0) };
        ensure!(fd >= 0, "memfd_create: {}", std::io::Error::last_os_error());
        // SAFETY: `fd` was just made, and no other code has it.
        let mut file = unsafe { File::from_raw_fd(fd) };
        file.write_all(binary).and_then(|()| file.rewind()).context("unpacking the worker")?;
        Ok(Program(file))
    }

    /// Its path, for all processes of this user while this one lives.
    pub fn path(&self) -> PathBuf {
        format!("/proc/{}/fd/{}", std::process::id(), self.0.as_raw_fd()).into()
    }
}

/// Faults `bytes` in once and gives them back, so that the hypervisor has them.
pub fn warm(bytes: usize) -> Result<()> {
    let program = Program::find("touch")?;
    let mut warm = Command::new(program.path());
    // Ctrl-C is for the benchmark, as it is with what it measures.
    let status = warm.arg("warm").arg(bytes.to_string()).process_group(0).status()?;
    ensure!(status.success(), "warming {bytes} bytes: {status}; free some memory");
    Ok(())
}

/// Keeps every CPU busy until the answer is dropped.
pub fn occupy_all_cpus() -> Result<Busy> {
    let (program, mut busy) = (Program::find("touch")?, Busy(vec![]));
    for cpu in allowed_cpus()? {
        let mut spin = Command::new(program.path());
        busy.0.push(spin.arg("spin").arg(cpu.to_string()).process_group(0).spawn()?);
    }
    Ok(busy)
}

/// Processes that keep the CPUs busy.
#[derive(Debug)]
pub struct Busy(Vec<Child>);

impl Drop for Busy {
    fn drop(&mut self) {
        for child in &mut self.0 {
            // It may be gone already; nothing is left to do then.
            let _ = child.kill().and_then(|()| child.wait());
        }
    }
}

/// CPUs that this process may use.
pub fn allowed_cpus() -> Result<Vec<usize>> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
    parse_cpus(list.unwrap_or("0").trim()).context("/proc/self/status: Cpus_allowed_list")
}

/// `0-2,5` is 0, 1, 2 and 5.
fn parse_cpus(list: &str) -> Result<Vec<usize>> {
    let mut cpus = vec![];
    for range in list.split(',') {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        cpus.extend(first.parse()?..=last.parse::<usize>()?);
    }
    Ok(cpus)
}

/// Bytes of a cache line.
pub const LINE: usize = 64;
/// Cache lines of a page.
pub const LINES: usize = prezero::PAGE / LINE;

/// A worker that runs.
#[derive(Debug)]
pub struct Worker {
    name: String,
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
    stats: PathBuf,
    /// The last command.
    told: String,
}

impl Worker {
    /// Starts one under `allocator`; statistics, if it writes any, go to `stats`.
    pub fn start(program: &Program, allocator: &Allocator, stats: PathBuf) -> Result<Worker> {
        let mut command = allocator.command(&program.path(), &stats)?;
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().with_context(|| format!("starting {}", allocator.name))?;
        let input = child.stdin.take();
        let output = child.stdout.take().context("the worker's stdout")?;
        let (name, output) = (allocator.name.clone(), BufReader::new(output));
        Ok(Worker { name, child, input, output, stats, told: String::new() })
    }

    /// CPU time of its scrubbing thread so far, in ns; `None` if it has none.
    pub fn background_ns(&self) -> Option<u64> {
        let tasks = std::fs::read_dir(format!("/proc/{}/task", self.child.id())).ok()?;
        let scrubds = tasks.flatten().map(|task| task.path()).filter(|task| {
            std::fs::read_to_string(task.join("comm")).is_ok_and(|comm| comm.contains("scrubd"))
        });
        let times: Vec<u64> = scrubds
            .filter_map(|task| std::fs::read_to_string(task.join("schedstat")).ok())
            .filter_map(|line| line.split(' ').next()?.parse().ok())
            .collect();
        (!times.is_empty()).then(|| times.iter().sum())
    }

    /// Ends it; what it wrote into its statistics file, if it wrote any.
    pub fn finish(mut self) -> Result<Option<serde_json::Value>> {
        drop(self.input.take());
        let status = self.child.wait()?;
        ensure!(status.success(), "{}: the worker ended with {status}", self.name);
        let written = std::fs::read_to_string(&self.stats).ok();
        Ok(written.and_then(|text| serde_json::from_str(&text).ok()))
    }

    /// Sends a command; the numbers of the answer.
    pub fn ask(&mut self, command: &str) -> Result<Vec<u64>> {
        self.tell(command)?;
        self.hear()
    }

    /// Sends a command whose answer will be [heard](Worker::hear) later.
    pub fn tell(&mut self, command: &str) -> Result<()> {
        let input = self.input.as_mut().context("the worker's stdin")?;
        self.told = command.into();
        // One that is gone is found when its answer is missed.
        let _ = writeln!(input, "{command}");
        Ok(())
    }

    /// The numbers of the answer to the last command.
    pub fn hear(&mut self) -> Result<Vec<u64>> {
        let (mut answer, told) = (String::new(), &self.told);
        if self.output.read_line(&mut answer).is_err() || answer.is_empty() {
            bail!("{}: the worker died at '{told}': {}", self.name, self.child.wait()?);
        }
        let numbers = answer.split_whitespace().map(str::parse).collect::<Result<_, _>>();
        numbers.with_context(|| format!("{}: '{told}': {}", self.name, answer.trim()))
    }

    /// Stops all its threads, or lets them go on.
    pub fn signal(&self, what: Signal) -> Result<()> {
        let signal = match what {
            Signal::Stop => libc::SIGSTOP,
            Signal::Continue => libc::SIGCONT,
        };
        // SAFETY: a system call on a child that was not waited for.
        let rc = unsafe { libc::kill(self.child.id() as libc::pid_t, signal) };
        ensure!(rc == 0, "{}: {what:?}: {}", self.name, std::io::Error::last_os_error());
        Ok(())
    }
}

/// What [`Worker::signal`] sends.
#[derive(Clone, Copy, Debug)]
pub enum Signal {
    /// SIGSTOP.
    Stop,
    /// SIGCONT.
    Continue,
}

impl Drop for Worker {
    fn drop(&mut self) {
        // After `finish` it is gone already; after an error it must not stay.
        if self.input.take().is_some() {
            let _ = self.child.kill().and_then(|()| self.child.wait());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_lists() {
        assert_eq!(parse_cpus("0-2,5").unwrap(), [0, 1, 2, 5]);
        assert!(parse_cpus("x").is_err());
    }

    #[test]
    fn a_worker_that_dies_is_reported() {
        let (program, plain) = (Program::find("disturb").unwrap(), Allocator::plain());
        let mut worker = Worker::start(&program, &plain, "/nonexistent".into()).unwrap();
        let error = worker.ask("nonsense").unwrap_err().to_string();
        assert!(error.contains("glibc: the worker died at 'nonsense'"), "{error}");
    }
}
