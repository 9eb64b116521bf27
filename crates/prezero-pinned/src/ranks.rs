//! The ranks of a server that have a lease each (`--each`): which one a request is of.
//!
//! A pinned allocation is of the rank whose GPU the calling thread has. Other memory is of the process's rank, by the
//! variables of launchers, or of the first.

use std::ffi::c_int;

/// What launchers call the number of a process on its host.
const VARIABLES: [&str; 4] =
    ["LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "SLURM_LOCALID"];

/// See the module.
#[derive(Default, Debug)]
pub struct Ranks {
    /// The PCI address of each rank's GPU; empty: not known.
    gpus: Vec<String>,
    mine: usize,
}

impl Ranks {
    /// What `prezero claim` left: a descriptor, an inode and a GPU for each rank.
    #[allow(clippy::type_complexity, reason = "read once, here")]
    pub fn of_this_process() -> Option<(Ranks, Vec<(c_int, u64)>)> {
        let told = std::env::var("PREZERO_LEASE_RANKS").ok()?;
        let (mut gpus, mut files) = (vec![], vec![]);
        for rank in told.split(',') {
            let mut words = rank.splitn(3, '/');
            files.push((words.next()?.parse().ok()?, words.next()?.parse().ok()?));
            gpus.push(words.next().unwrap_or("").to_owned());
        }
        let number = |name: &&str| std::env::var(name).ok()?.parse::<usize>().ok();
        let mine = VARIABLES.iter().find_map(number).unwrap_or(0);
        Some((Ranks { gpus, mine }, files))
    }

    /// Whether requests go by their GPU.
    pub fn have_gpus(&self) -> bool {
        self.gpus.iter().any(|gpu| !gpu.is_empty())
    }

    /// This process's.
    pub fn mine(&self) -> usize {
        self.mine
    }

    /// That of a GPU, whose address ends in NUL or not; a driver has more zeroes in front than the kernel.
    pub fn of(&self, gpu: Option<&[u8]>) -> usize {
        let digits = |address: &[u8]| {
            let end = address.iter().position(|&byte| byte == 0).unwrap_or(address.len());
            let begin = address.iter().take_while(|&&byte| byte == b'0').count();
            begin.min(end)..end
        };
        let same =
            |one: &[u8], other: &[u8]| one[digits(one)].eq_ignore_ascii_case(&other[digits(other)]);
        let of = |gpu: &[u8]| {
            self.gpus.iter().position(|each| !each.is_empty() && same(each.as_bytes(), gpu))
        };
        gpu.and_then(of).unwrap_or(self.mine)
    }
}
