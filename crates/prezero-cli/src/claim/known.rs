//! Programs that are known: how each takes its lease, what goes wrong with it and can be seen in a
//! command line, and how the program is started without one.
//!
//! | program | a lease is | without a lease |
//! |---|---|---|
//! | QEMU | `memory-backend-file`, shared and aligned | `memory-backend-ram`; `memory-backend-memfd` beside a vhost-user device |
//! | Cloud Hypervisor | `file={lease}`, shared | the file is ordinary memory |
//! | JVM | `-XX:AllocateHeapAt=DIR`, answered by the preloaded library | the option goes; in a file, the file is ordinary memory |
//! | memcached | `-e {lease}` of its exact size | the option goes |
//! | `PostgreSQL` | its shared memory, answered by the preloaded library | its shared memory |
//!
//! What costs more than no lease is refused before anything is leased, with the mend.

mod cloud_hypervisor;
mod java;
mod memcached;
mod qemu;

use std::path::Path;

use prezero::Size;
use prezero_host::jvm::Around;

use super::line::{Line, PLACE};

/// Whether `libprezero_lease_shim.so` answers for the program.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Preloaded {
    Yes,
    No,
}

/// What the program is offered.
#[derive(Clone, Copy, Debug)]
pub struct Offer<'a> {
    pub lease: Size,
    /// Of its pages.
    pub page: u64,
    /// Its path, if it was given one.
    pub path: Option<&'a Path>,
    pub preloaded: Preloaded,
}

impl Offer<'_> {
    /// Whether that is the lease's path.
    fn is_lease(&self, file: &str) -> bool {
        file == PLACE || self.path.is_some_and(|path| path.as_os_str() == file)
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Known {
    Qemu,
    CloudHypervisor,
    Java,
    Memcached,
    Postgres,
    /// Any other program.
    Other,
}

/// The program of this line. A QEMU behind another program, as numactl, is known by its memory.
fn known(line: &Line, offer: &Offer<'_>) -> Known {
    match line.program() {
        "java" => Known::Java,
        "memcached" => Known::Memcached,
        "postgres" => Known::Postgres,
        "cloud-hypervisor" => Known::CloudHypervisor,
        program if crate::qemu::is_qemu(program) => Known::Qemu,
        _ if qemu::names(line, offer) => Known::Qemu,
        _ => Known::Other,
    }
}

/// Refuses what would cost more than no lease, or could not start.
pub fn look(line: &Line, offer: &Offer<'_>, around: &Around<'_>) -> Result<(), String> {
    match known(line, offer) {
        Known::Qemu => qemu::look(line, offer),
        Known::CloudHypervisor => cloud_hypervisor::look(line, offer),
        Known::Java => java::look(line, offer, around),
        Known::Memcached => memcached::look(line, offer),
        Known::Postgres | Known::Other => qemu::no_mem_path(line),
    }
}

/// Adds what each lease needs.
pub fn fit(line: &mut Line, offer: &Offer<'_>) {
    if known(line, offer) == Known::Qemu {
        qemu::fit(line, offer);
    }
}

/// What the program starts with where there is no lease.
#[derive(PartialEq, Eq, Debug)]
pub enum Instead {
    /// Its own memory, and these variables.
    Own(Vec<(&'static str, String)>),
    /// A file of ordinary memory, as large as the lease.
    File,
}

/// Changes the line into one of the program without a lease.
pub fn plain(line: &mut Line, offer: &Offer<'_>, around: &Around<'_>) -> Instead {
    match known(line, offer) {
        Known::Qemu => qemu::plain(line, offer),
        Known::Memcached => memcached::plain(line),
        Known::Java => return java::plain(line, around),
        Known::Postgres => {}
        Known::CloudHypervisor | Known::Other => return Instead::File,
    }
    let names_it = |word: &&str| word.contains(PLACE) || offer.is_lease(word);
    if line.words().iter().any(names_it) { Instead::File } else { Instead::Own(vec![]) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::OsString;

    pub const OFFER: Offer<'static> =
        Offer { lease: Size(1 << 30), page: 2 << 20, path: None, preloaded: Preloaded::Yes };

    pub const NOTHING: Around<'static> = Around { variable: &|_| None, file: &|_| None };

    pub fn line(words: &[&str]) -> Line {
        let words: Vec<OsString> = words.iter().map(OsString::from).collect();
        Line::new(&words[0], &words[1..])
    }

    #[test]
    fn programs_that_are_not_known_get_a_file_in_place_of_the_lease() {
        for words in [&["cmp", "{lease}"][..], &["./start.sh"], &["sh", "-c", "java -jar x"]] {
            let mut line = line(words);
            assert_eq!(look(&line, &OFFER, &NOTHING), Ok(()));
            assert_eq!(plain(&mut line, &OFFER, &NOTHING), Instead::File);
            assert_eq!(line.words(), words[1..]);
        }
        let mut postgres = line(&["postgres", "-D", "dir"]);
        assert_eq!(plain(&mut postgres, &OFFER, &NOTHING), Instead::Own(vec![]));
    }

    #[test]
    fn of_a_known_program_what_still_names_the_lease_gets_the_file() {
        let mut qemu = line(&["kvm", "-drive", "file={lease},format=raw"]);
        assert_eq!(plain(&mut qemu, &OFFER, &NOTHING), Instead::File);
    }
}
