//! One run of a program from its start to its end, and what the kernel says that it used.

use std::cell::Cell;
use std::io;
use std::process::{Command, ExitStatus};
use std::time::{Duration, Instant};

/// How often the end of a program is looked for, where it may last too long.
const POLL: Duration = Duration::from_millis(2);

/// What a run used, its waited-for children included.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Spent {
    /// From start to end.
    pub wall_s: f64,
    /// CPU time in the program.
    pub user_s: f64,
    /// CPU time in the kernel.
    pub system_s: f64,
    /// Page faults, with and without a disk.
    pub faults: f64,
    /// Peak resident, of the largest process.
    pub peak_mib: f64,
}

impl Spent {
    /// In the program and in the kernel.
    pub fn cpu_s(&self) -> f64 {
        self.user_s + self.system_s
    }
}

/// Idle time of all CPUs and all of their time since the machine began, in ticks.
pub fn cpu_times() -> (f64, f64) {
    let stat = std::fs::read_to_string("/proc/stat").unwrap_or_default();
    let fields = stat.lines().next().unwrap_or_default().split_whitespace().skip(1);
    // A guest's time is a part of user time.
    let fields: Vec<f64> = fields.take(8).filter_map(|field| field.parse().ok()).collect();
    let idle = fields.get(3).unwrap_or(&0.0) + fields.get(4).unwrap_or(&0.0);
    (idle, fields.iter().sum())
}

/// A program that runs.
#[derive(Debug)]
pub struct Started {
    pid: libc::pid_t,
    began: Instant,
    /// Once it was waited for.
    ended: Cell<Option<(Spent, ExitStatus)>>,
}

impl Started {
    /// Starts it.
    ///
    /// # Errors
    /// It cannot be started.
    pub fn start(command: &mut Command) -> io::Result<Started> {
        let began = Instant::now();
        let child = command.spawn()?;
        Ok(Started { pid: child.id() as libc::pid_t, began, ended: Cell::new(None) })
    }

    /// Its number.
    pub fn pid(&self) -> i32 {
        self.pid
    }

    /// Waits for its end.
    ///
    /// # Errors
    /// The kernel knows of no such child.
    pub fn end(self) -> io::Result<(Spent, ExitStatus)> {
        loop {
            if let Some(end) = self.wait(0)? {
                return Ok(end);
            }
        }
    }

    /// Its end, if it ends in time.
    ///
    /// # Errors
    /// As for [`end`](Self::end).
    pub fn end_within(&self, patience: Duration) -> io::Result<Option<(Spent, ExitStatus)>> {
        let until = Instant::now() + patience;
        loop {
            let end = self.wait(libc::WNOHANG)?;
            if end.is_some() || Instant::now() >= until {
                return Ok(end);
            }
            std::thread::sleep(POLL);
        }
    }

    fn wait(&self, options: libc::c_int) -> io::Result<Option<(Spent, ExitStatus)>> {
        if let Some(end) = self.ended.get() {
            return Ok(Some(end));
        }
        let mut status = 0;
        // SAFETY: all-zero bytes are a valid rusage.
        let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
        // SAFETY: waits for our own child, which no other code waits for: the `Child` was dropped, which does not
        // wait. Both pointers are to live locals.
        let answer = unsafe { libc::wait4(self.pid, &mut status, options, &mut usage) };
        if answer != self.pid {
            let error = io::Error::last_os_error();
            let again = answer == 0 || error.kind() == io::ErrorKind::Interrupted;
            return if again { Ok(None) } else { Err(error) };
        }
        let seconds = |time: libc::timeval| time.tv_sec as f64 + time.tv_usec as f64 / 1e6;
        let spent = Spent {
            wall_s: self.began.elapsed().as_secs_f64(),
            user_s: seconds(usage.ru_utime),
            system_s: seconds(usage.ru_stime),
            faults: (usage.ru_minflt + usage.ru_majflt) as f64,
            peak_mib: usage.ru_maxrss as f64 / 1024.0,
        };
        let end = (spent, std::os::unix::process::ExitStatusExt::from_raw(status));
        self.ended.set(Some(end));
        Ok(Some(end))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_is_measured_with_its_children_and_its_status_told() {
        let script = "sh -c 'i=0; while [ $i -lt 30000 ]; do i=$((i+1)); done'; exit 3";
        let started = Started::start(Command::new("sh").args(["-c", script])).unwrap();
        assert!(started.pid() > 0);
        let (spent, status) = started.end().unwrap();
        assert_eq!(status.code(), Some(3));
        assert!(spent.wall_s > 0.0 && spent.user_s > 0.0 && spent.peak_mib > 0.0, "{spent:?}");
        assert!(spent.faults > 0.0);
    }

    #[test]
    fn a_run_that_lasts_is_given_up_and_can_be_ended() {
        let started = Started::start(Command::new("sleep").arg("1000")).unwrap();
        assert!(started.end_within(Duration::ZERO).unwrap().is_none());
        // SAFETY: our own child, which was not waited for.
        unsafe { libc::kill(started.pid(), libc::SIGKILL) };
        assert!(!started.end().unwrap().1.success());
    }
}
