//! systemd: sockets and inodes that it hands over, and what it is told.
//!
//! Contract: the environment is read once, at the start, and what was handed over is taken then. What the manager keeps
//! for the next broker is `store`'s.

use std::env;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use prezero_sys::peer;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{SendFlags, sockopt};
use rustix::pipe::{PipeFlags, pipe_with};

use super::store::{self, Store};

/// The service manager, if there is one.
#[derive(Debug)]
pub struct Service {
    /// What it keeps for the next broker.
    pub store: Store,
    /// Half of the watchdog's time; `None`: no watchdog.
    pub watchdog: Option<Duration>,
}

/// What was handed over.
#[derive(Debug, Default)]
pub struct Inherited {
    /// A socket that listens for clients.
    pub listener: Option<OwnedFd>,
    /// One that listens for Prometheus.
    pub metrics: Option<OwnedFd>,
    /// What was stored: names, and inodes.
    pub stored: Vec<(String, OwnedFd)>,
}

impl Service {
    /// Reads the environment, and takes what was handed over. To be called first of all.
    pub fn take() -> (Service, Inherited) {
        let number = |name: &str| env::var(name).ok()?.parse::<u64>().ok();
        let mine = |name: &str| number(name) == Some(u64::from(std::process::id()));
        let mut inherited = Inherited::default();
        if mine("LISTEN_PID") {
            let count = number("LISTEN_FDS").unwrap_or(0) as usize;
            let names = env::var("LISTEN_FDNAMES").unwrap_or_default();
            let names = names.split(':').map(str::to_owned).chain(std::iter::repeat(String::new()));
            // SAFETY: the manager opened these for this process, which has not looked at a
            // descriptor yet.
            #[expect(unsafe_code, reason = "descriptors by number, as the manager gives them")]
            let files = unsafe { peer::inherited(count) };
            for (file, name) in files.into_iter().zip(names) {
                let listens = sockopt::socket_acceptconn(&file).unwrap_or(false);
                let slot = match name.as_str() {
                    "metrics" => &mut inherited.metrics,
                    _ => &mut inherited.listener,
                };
                match slot {
                    None if listens => *slot = Some(file),
                    // It is stored, under a name that this version knows or not.
                    _ => inherited.stored.push((name, file)),
                }
            }
        }
        let watched = env::var_os("WATCHDOG_PID").is_none() || mine("WATCHDOG_PID");
        let watchdog = number("WATCHDOG_USEC").filter(|_| watched);
        let service = Service {
            store: env::var("NOTIFY_SOCKET").map_or(Store::default(), |path| Store::at(&path)),
            watchdog: watchdog.map(|us| Duration::from_micros(us / 2)),
        };
        (service, inherited)
    }

    /// Tells the manager something; nothing depends on it.
    pub fn tell(&self, message: &str) {
        let _ = self.store.send(message, None, SendFlags::empty());
    }

    /// Tells the manager that the broker lives, if the manager hears.
    pub fn ping(&self) {
        let _ = self.store.send("WATCHDOG=1", None, SendFlags::DONTWAIT);
    }

    /// Makes the manager forget what it stored, and waits until it has. False: it may still
    /// hold some, and it may not be leased.
    pub fn forget<'a>(&self, names: impl Iterator<Item = &'a str>) -> bool {
        for name in names {
            if self.store.send(&store::removal(name), None, SendFlags::empty()).is_err() {
                return false;
            }
        }
        self.barrier().is_ok()
    }

    /// Waits until the manager has read everything that was sent before: it closes the pipe.
    ///
    /// # Errors
    /// There is no manager, or it has not read it in time.
    pub fn barrier(&self) -> Result<(), Errno> {
        let (read, write) = pipe_with(PipeFlags::CLOEXEC)?;
        self.store.send("BARRIER=1", Some(write.as_fd()), SendFlags::empty())?;
        drop(write);
        let timeout = Timespec::try_from(store::PATIENCE).ok();
        match poll(&mut [PollFd::new(&read, PollFlags::HUP)], timeout.as_ref())? {
            0 => Err(Errno::TIMEDOUT),
            _ => Ok(()),
        }
    }
}
