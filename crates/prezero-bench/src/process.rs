//! One run of a program from its start to its end, and what the kernel says that it used.

use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result, ensure};

/// One run.
#[derive(Clone, Copy, Debug)]
pub struct Run {
    /// From start to end.
    pub wall_s: f64,
    /// User and system, waited-for children included.
    pub cpu_s: f64,
    /// Peak resident, of the largest process.
    pub rss_mib: f64,
}

/// Runs a command to its end, and what the kernel says that it used.
pub fn once(command: &mut Command) -> Result<Run> {
    Ok(once_with_faults(command)?.0)
}

/// As [`once`], and the page faults that needed no disk, waited-for children included.
pub fn once_with_faults(command: &mut Command) -> Result<(Run, u64)> {
    let start = Instant::now();
    let child = command.spawn().context("cannot be started")?;
    let (mut status, pid) = (0, child.id() as libc::pid_t);
    // SAFETY: all-zero bytes are a valid rusage.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    loop {
        // SAFETY: waits for our own child, which no other code waits for: `child` is only dropped,
        // and that does not wait. Both pointers are to live locals.
        if unsafe { libc::wait4(pid, &mut status, 0, &mut usage) } == pid {
            break;
        }
        let error = std::io::Error::last_os_error();
        ensure!(error.kind() == std::io::ErrorKind::Interrupted, "wait4: {error}");
    }
    let wall_s = start.elapsed().as_secs_f64();
    let status = std::os::unix::process::ExitStatusExt::from_raw(status);
    let status: std::process::ExitStatus = status;
    ensure!(status.success(), "it ended with {status}; does it run by itself?");
    let seconds = |time: libc::timeval| time.tv_sec as f64 + time.tv_usec as f64 / 1e6;
    let cpu_s = seconds(usage.ru_utime) + seconds(usage.ru_stime);
    let run = Run { wall_s, cpu_s, rss_mib: usage.ru_maxrss as f64 / 1024.0 };
    Ok((run, usage.ru_minflt as u64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_is_measured_with_its_children_and_its_failure_told() {
        let run = once(
            Command::new("sh")
                .args(["-c", "sh -c 'i=0; while [ $i -lt 30000 ]; do i=$((i+1)); done'"]),
        )
        .unwrap();
        assert!(run.wall_s > 0.0 && run.cpu_s > 0.0 && run.rss_mib > 0.0, "{run:?}");
        let error = once(Command::new("sh").args(["-c", "exit 3"])).unwrap_err().to_string();
        assert!(error.contains("exit status: 3"), "{error}");
    }
}
