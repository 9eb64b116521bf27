//! One run of a program from its start to its end, and what the kernel says that it used.

use std::process::Command;

use anyhow::{Context, Result, ensure};
use prezero_cli::spent::{Spent, Started};

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

/// As [`once`], and the page faults, waited-for children included.
pub fn once_with_faults(command: &mut Command) -> Result<(Run, u64)> {
    let (spent, status) = Started::start(command).context("cannot be started")?.end()?;
    ensure!(status.success(), "it ended with {status}; does it run by itself?");
    let Spent { wall_s, user_s, system_s, faults, peak_mib } = spent;
    Ok((Run { wall_s, cpu_s: user_s + system_s, rss_mib: peak_mib }, faults as u64))
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
