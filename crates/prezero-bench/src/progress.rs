//! How far a benchmark is: a bar with the time left on a terminal's stderr, nothing elsewhere.
//!
//! A benchmark says how many steps it [`expect`]s and takes each with [`step`], which is also
//! where Ctrl-C is heard: the step is refused with [`Interrupted`], and what was measured
//! before is reported as any result, only marked as incomplete. Being told to end (SIGTERM, or
//! the terminal goes away) is the same: reserved memory is given back. A second one, later, ends
//! the program at once. The programs that are measured are not in the terminal's foreground group,
//! so that the first one does not end them in mid-sentence.

use std::io::IsTerminal;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use anyhow::Result;

pub use prezero_command::outcome::Interrupted;

/// When that was first, ns of the monotonic clock; 0: never.
static PRESSED_AT: AtomicU64 = AtomicU64::new(0);
/// The time within which a second signal is the same wish, ns: `timeout` sends its signal twice, to
/// the program and to its group.
const SAME_NS: u64 = 300_000_000;
static BAR: Mutex<Option<Bar>> = Mutex::new(None);
const WIDTH: usize = 24;

struct Bar {
    steps: usize,
    begun: usize,
    since: Instant,
}

/// From now on Ctrl-C and its kin interrupt between two steps.
pub fn listen() {
    extern "C" fn pressed(_: libc::c_int) {
        let now = prezero_sys::thread::monotonic_ns();
        let first = PRESSED_AT.compare_exchange(0, now, Relaxed, Relaxed).err();
        if first.is_some_and(|first| now.saturating_sub(first) > SAME_NS) {
            // SAFETY: may be called in a handler; 130 is what a shell expects.
            unsafe { libc::_exit(130) };
        }
    }
    let handler = pressed as extern "C" fn(libc::c_int);
    // SAFETY: the handler touches one atomic and calls what a handler may.
    unsafe {
        libc::signal(libc::SIGTERM, handler as libc::sighandler_t);
        if libc::signal(libc::SIGHUP, handler as libc::sighandler_t) == libc::SIG_IGN {
            libc::signal(libc::SIGHUP, libc::SIG_IGN); // it was started by nohup(1)
        }
        libc::signal(libc::SIGINT, handler as libc::sighandler_t);
    }
}

/// That nothing was left out.
///
/// # Errors
/// [`Interrupted`], which is no success of a command whatever it has shown.
pub fn whole() -> Result<()> {
    if interrupted() { Err(Interrupted.into()) } else { Ok(()) }
}

/// Whether the user pressed Ctrl-C.
pub fn interrupted() -> bool {
    PRESSED_AT.load(Relaxed) != 0
}

/// The steps to come.
pub fn expect(steps: usize) {
    listen();
    let bar = Bar { steps, begun: 0, since: Instant::now() };
    BAR.lock().map(|mut shown| *shown = Some(bar)).ok();
}

/// The next step begins.
///
/// # Errors
/// [`Interrupted`], if the user pressed Ctrl-C.
pub fn step(label: &str) -> Result<()> {
    whole()?;
    let Ok(mut bar) = BAR.lock() else { return Ok(()) };
    let line = match &mut *bar {
        Some(bar) => {
            bar.begun += 1;
            bar.line(label, bar.since.elapsed())
        }
        None => label.to_string(),
    };
    show(&line);
    Ok(())
}

/// There is no next step.
pub fn end() {
    BAR.lock().map(|mut bar| *bar = None).ok();
    show("");
}

/// The outcome, or none if the user interrupted it. Any other error stays one.
///
/// # Errors
/// Any but [`Interrupted`].
pub fn kept<T>(made: Result<T>) -> Result<Option<T>> {
    match made {
        Ok(made) => Ok(Some(made)),
        Err(error) if error.is::<Interrupted>() => Ok(None),
        Err(error) => Err(error),
    }
}

fn show(line: &str) {
    if std::io::stderr().is_terminal() {
        prezero_sys::say::complain(&format!("\r\x1b[K{line}"));
    }
}

impl Bar {
    fn line(&self, label: &str, passed: Duration) -> String {
        let (done, steps) = (self.begun - 1, self.steps.max(self.begun));
        let full = done * WIDTH / steps;
        let left = if done == 0 {
            String::new()
        } else {
            let left = passed.as_secs_f64() / done as f64 * (steps - done) as f64;
            let left = left.round() as u64;
            format!(", {}:{:02} left", left / 60, left % 60)
        };
        format!(
            "[{}{}] {}/{steps}{left}  {label}",
            "#".repeat(full),
            "-".repeat(WIDTH - full),
            self.begun
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_left_is_what_the_steps_took_so_far() {
        let bar = Bar { steps: 9, begun: 4, since: Instant::now() };
        let line = bar.line("x", Duration::from_secs(30));
        assert!(
            line.starts_with("[########------") && line.ends_with("4/9, 1:00 left  x"),
            "{line}"
        );
    }

    #[test]
    fn the_first_step_knows_nothing_and_more_steps_than_expected_are_no_error() {
        let first = Bar { steps: 2, begun: 1, since: Instant::now() };
        assert!(first.line("x", Duration::ZERO).contains("] 1/2  x"));
        let more = Bar { steps: 2, begun: 5, since: Instant::now() };
        assert!(more.line("x", Duration::from_secs(8)).contains("] 5/5, 0:02 left"));
    }
}
