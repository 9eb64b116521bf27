//! `prezero wipe`: free memory that is zero, for a snapshot of this guest.
//!
//! What a program gives back holds what the program wrote, until the kernel clears it for the next one.
//! A snapshot of a guest saves it all. Here one process takes what is free, which has the kernel clear
//! it, and gives it back by its end.
//!
//! The process takes steps and looks round before each. It takes what no other program has, displaces
//! no file that is cached, and wakes no reclaim ([`room`]).
//! What it leaves free stays as it is.

mod counted;
mod room;

use std::fmt;
use std::path::Path;

use anyhow::{Result, bail};
use prezero::Size;
use prezero_host::Pressure;
use prezero_host::pressure::Memory;
use prezero_sys::shared::PrivateMap;
use prezero_sys::{guest, thread};

use counted::Counted;
use room::Room;

/// The command line of `prezero wipe`.
#[derive(clap::Args)]
#[command(after_help = "Example: prezero wipe --report\n\
    Free memory that the guest reports to its hypervisor is gone already: refused there.\n\
    Cached files stay: echo 3 > /proc/sys/vm/drop_caches comes before, if they should go.")]
pub struct Wipe {
    /// Memory that stays available, and is not wiped [default: 1/32 of all]
    #[arg(long, value_name = "SIZE")]
    leave: Option<Size>,
    /// Count free pages that are zero before and after: as root, reads all of them
    #[arg(long)]
    report: bool,
}

/// Bytes that are taken between two looks round.
/// Moved by: `tests/system/wipe.py`.
const STEP: u64 = 64 << 20;
/// Less room than this is none, bytes.
const CRUMB: u64 = 1 << 20;
/// Part of memory that stays available, as a divisor. Below 3 % [`Pressure`] says that memory is short.
const LEAVE: u64 = 32;

/// Why there was no further step.
#[derive(Debug, PartialEq, Eq)]
enum End {
    /// What is free is taken, down to what is left.
    Full,
    /// Others wait for memory, or a cgroup has no more.
    Pressed,
    /// The kernel had no page.
    Refused,
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            End::Full => "the rest stays free for others",
            End::Pressed => "memory became short (PSI, or a cgroup's limit); try again later",
            End::Refused => "the kernel gave no more; look at this cgroup's limit",
        })
    }
}

impl Wipe {
    /// Takes what is free, and gives it back.
    ///
    /// # Errors
    /// It is of no use here, what is to be counted cannot be read, or nothing could be taken.
    pub fn run(&self) -> Result<()> {
        if guest::reports_free_memory() {
            bail!(
                "this guest reports free memory to its hypervisor, which takes it away: a snapshot \
                 has none of it, and wiping brings all of it back; nothing is to be done"
            );
        }
        let root = Path::new("/");
        let free = Room::of(root)?.free;
        let before = self.report.then(|| Counted::of(root)).transpose()?;
        // Should memory be gone all the same, this process is the first to end.
        let _ = std::fs::write("/proc/self/oom_score_adj", "1000");
        let (wiped, end) = self.take(root)?;
        let size = |bytes: u64| Size((bytes >> 20 << 20) as usize);
        if wiped == 0 {
            bail!("nothing wiped of {} that are free: {end}", size(free));
        }
        prezero_sys::print!("wiped {} of {} that were free; {end}\n", size(wiped), size(free))?;
        if let Some(before) = before {
            let after = Counted::of(root)?;
            prezero_sys::print!("before: {before}\nafter:  {after}\n")?;
        }
        Ok(())
    }

    /// Bytes that were taken, and why no more. They are given back on return.
    fn take(&self, root: &Path) -> Result<(u64, End)> {
        let mut pressure = Pressure::new(root);
        let (mut taken, mut wiped) = (vec![], 0);
        let end = loop {
            if pressure.sample(thread::monotonic_ns()).memory == Memory::Tight {
                break End::Pressed;
            }
            let room = Room::of(root)?;
            let leave = self.leave.map_or(room.total / LEAVE, |leave| leave.0 as u64);
            let left = room.bytes(leave);
            if left < CRUMB {
                break End::Full;
            }
            let step = left.min(STEP) / CRUMB * CRUMB;
            let map = PrivateMap::new(step as usize)?;
            let populated = map.populate();
            taken.push(map);
            if populated.is_err() {
                break End::Refused;
            }
            wiped += step;
        };
        Ok((wiped, end))
    }
}
