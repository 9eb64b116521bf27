//! What is known to go wrong with a lease, and can be seen in a command line: refused before
//! anything is leased, with the mend.

use std::borrow::Cow;
use std::ffi::{OsStr, OsString};
use std::path::Path;

use prezero::Size;

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
    /// Its path, if it was given one.
    pub path: Option<&'a Path>,
    pub preloaded: Preloaded,
}

/// Refuses what would cost more than no lease, or could not start.
pub fn look(name: &OsStr, arguments: &[OsString], offer: Offer<'_>) -> Result<(), String> {
    let words: Vec<Cow<'_, str>> = arguments.iter().map(|word| word.to_string_lossy()).collect();
    let program = Path::new(name).file_name().unwrap_or_default().to_string_lossy();
    qemu(&words)?;
    match &*program {
        "java" => java(&words, offer.lease, offer.preloaded),
        "memcached" => memcached(&words, offer),
        _ => Ok(()),
    }
}

/// QEMU maps a file privately unless told to share it, and then copies every page that the
/// guest writes. It takes an object as `key=value,...` or, from libvirt, as JSON.
fn qemu(words: &[Cow<'_, str>]) -> Result<(), String> {
    if words.windows(2).any(|pair| pair[0].ends_with("-mem-path") && pair[1].contains("{lease}")) {
        return Err("-mem-path: a private mapping copies each page that the guest writes; give -machine \
                    memory-backend=m -object memory-backend-file,id=m,size=SIZE,mem-path={lease},share=on"
            .into());
    }
    let of_the_lease =
        |word: &&Cow<'_, str>| word.contains("memory-backend-file") && word.contains("{lease}");
    match words.iter().filter(of_the_lease).find(|backend| !is_shared(backend)) {
        Some(backend) => Err(format!(
            "{backend}: a private mapping copies each page that the guest writes; add {}",
            if backend.starts_with('{') { "\"share\":true" } else { "share=on" }
        )),
        None => Ok(()),
    }
}

fn is_shared(backend: &str) -> bool {
    if let Ok(object) = serde_json::from_str::<serde_json::Value>(backend) {
        return object["share"] == true;
    }
    // Of two the last holds.
    let share = backend.split(',').filter_map(|part| part.strip_prefix("share=")).next_back();
    share.is_some_and(|share| ["on", "yes", "true", "y"].contains(&share))
}

/// A JVM that is not told where to put its heap never asks for the lease, nor is one answered
/// without the library; and one that wants a larger heap than the lease does not start.
fn java(words: &[Cow<'_, str>], lease: Size, preloaded: Preloaded) -> Result<(), String> {
    if preloaded == Preloaded::No {
        return Err("java: it takes no path of memory; give prezero claim --preload".into());
    }
    let heap = words.iter().rev().find_map(|word| word.strip_prefix("-Xmx"));
    let heap = heap.and_then(|heap| heap.to_uppercase().parse::<Size>().ok());
    if let Some(heap) = heap.filter(|heap| heap.0 > lease.0) {
        return Err(format!("java: a heap of {heap} does not fit into {lease}; lease {heap}"));
    }
    if words.iter().any(|word| word.starts_with("-XX:AllocateHeapAt=")) {
        return Ok(());
    }
    Err("java: the heap is not put into the lease; add -XX:AllocateHeapAt=/tmp (any directory)"
        .into())
}

/// Letters of memcached's options that have a value.
const MEMCACHED_VALUES: &str = "abBcDefIlmnNoPpRstuUY";

/// memcached without a path leaves the lease alone; with one it makes the file as large as its
/// limit, which a lease refuses, and dies of that.
fn memcached(words: &[Cow<'_, str>], offer: Offer<'_>) -> Result<(), String> {
    let value = |letter, name| option(words, letter, name, MEMCACHED_VALUES);
    let is_lease = |file: &str| {
        file == "{lease}" || offer.path.is_some_and(|path| path.as_os_str() == OsStr::new(file))
    };
    if !value('e', "memory-file").is_some_and(is_lease) {
        return Err("memcached: it does not use the lease; add -e {lease}".into());
    }
    // Of anything else than a number memcached takes what it begins with.
    let given = value('m', "memory-limit");
    let digits = given.map(|mib| mib.split(|c: char| !c.is_ascii_digit()).next().unwrap_or(""));
    let limit = digits.map_or(Some(64), |digits| digits.parse::<usize>().ok());
    let (lease, mib) = (offer.lease, offer.lease.0 >> 20);
    match limit.and_then(|mib| mib.checked_mul(1 << 20)) {
        Some(bytes) if bytes == lease.0 => Ok(()),
        limit => {
            let given = given.map_or("no -m (64M)".into(), |given| format!("-m {given}"));
            let other = limit.filter(|bytes| *bytes > 0 && bytes.is_multiple_of(2 << 20));
            let other = other.map_or(String::new(), |bytes| format!(", or lease {}", Size(bytes)));
            Err(format!(
                "memcached: {given} is not the size of the lease, {lease}, which it cannot change; give \
                 -m {mib}{other}"
            ))
        }
    }
}

/// The value of an option as `getopt_long` finds it: of several the last, its name whole or cut
/// short, its letter behind others. `values` are the letters that have one.
fn option<'a>(
    words: &'a [Cow<'_, str>],
    letter: char,
    name: &str,
    values: &str,
) -> Option<&'a str> {
    let mut found = None;
    let mut words = words.iter().map(AsRef::as_ref);
    while let Some(word) = words.next().filter(|word| *word != "--") {
        if let Some(long) = word.strip_prefix("--") {
            let (given, joined) = long.split_once('=').map_or((long, None), |(a, b)| (a, Some(b)));
            // Two names may begin alike.
            let cut_short =
                given.len() > name.find('-').unwrap_or(0) + 1 && name.starts_with(given);
            if cut_short {
                found = joined.or_else(|| words.next());
            }
        } else if let Some(letters) = word.strip_prefix('-')
            && let Some(at) = letters.find(|letter| values.contains(letter))
        {
            let (has_it, rest) = (letters[at..].starts_with(letter), &letters[at + 1..]);
            let value = if rest.is_empty() { words.next() } else { Some(rest) };
            found = if has_it { value } else { found };
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(program: &str, words: &[&str]) -> Option<String> {
        let words: Vec<OsString> = words.iter().map(OsString::from).collect();
        look(OsStr::new(program), &words, offer(Preloaded::Yes)).err()
    }

    fn offer(preloaded: Preloaded) -> Offer<'static> {
        Offer { lease: Size(1 << 30), path: Some(Path::new("/run/lease")), preloaded }
    }

    #[test]
    fn a_private_guest_is_refused_with_the_mend() {
        for (backend, good) in [
            ("memory-backend-file,id=m,size=4G,mem-path={lease}", false),
            ("memory-backend-file,mem-path={lease},share=off", false),
            ("memory-backend-file,mem-path={lease},share=on", true),
            ("memory-backend-file,share=true,mem-path={lease}", true),
            ("memory-backend-file,share=on,mem-path={lease},share=off", false),
            ("qom-type=memory-backend-file,mem-path={lease}", false),
            ("memory-backend-file,mem-path=/dev/hugepages", true),
        ] {
            let refusal = refusal("qemu-system-x86_64", &["-object", backend]);
            assert_eq!(refusal.is_none(), good, "{backend}: {refusal:?}");
            assert!(refusal.is_none_or(|text| text.contains("add share=on")));
        }
        let other = "memory-backend-file,mem-path=/dev/hugepages";
        let private = "memory-backend-file,mem-path={lease}";
        assert!(refusal("kvm", &["-object", other, "-object", private]).is_some());
    }

    #[test]
    fn a_private_guest_is_found_as_libvirt_and_old_scripts_write_it() {
        let json = r#"{"qom-type":"memory-backend-file","id":"m","size":1,"mem-path":"{lease}"#;
        let refused = refusal("kvm", &["-object", &format!("{json}\"}}")]).unwrap();
        assert!(refused.contains("add \"share\":true"), "{refused}");
        assert_eq!(refusal("kvm", &["-object", &format!("{json}\",\"share\":true}}")]), None);
        let refused = refusal("kvm", &["-m", "4G", "-mem-path", "{lease}"]).unwrap();
        assert!(refused.contains("mem-path={lease},share=on"), "{refused}");
        assert_eq!(refusal("kvm", &["-mem-path", "/dev/hugepages"]), None);
    }

    #[test]
    fn programs_that_would_not_take_the_lease_are_refused_with_the_mend() {
        let heap = "-XX:AllocateHeapAt=/tmp";
        assert!(refusal("/usr/bin/java", &["-Xmx1g", "T"]).unwrap().contains(heap));
        assert_eq!(refusal("java", &["-Xmx1g", heap, "T"]), None);
        assert!(refusal("java", &["-Xmx1025m", heap, "T"]).unwrap().contains("lease 1025M"));
        assert_eq!(refusal("sh", &["-c", "java"]), None);
        let words = [OsString::from(heap)];
        let alone = look(OsStr::new("java"), &words, offer(Preloaded::No));
        assert!(alone.unwrap_err().contains("--preload"));
    }

    #[test]
    fn a_memcached_that_is_larger_or_smaller_than_its_lease_is_refused_with_the_mend() {
        for (words, mend) in [
            ("-m 1024 -e {lease}", None),
            ("-m 64 -vvm1024 -ve{lease}", None),
            ("--memory-limit=1024 --memory-file /run/lease", None),
            ("--memory-l 1024 --memory-file={lease}", None),
            ("-l 127.0.0.1 -o hash_algorithm=murmur3 -e {lease} -m 1024", None),
            ("-m 1024m -e {lease}", None),
            (
                "-e {lease}",
                Some(
                    "no -m (64M) is not the size of the lease, 1G, which it cannot change; give -m 1024, or lease 64M",
                ),
            ),
            ("-m 2048 -e {lease}", Some("give -m 1024, or lease 2G")),
            ("-m 1000 -e {lease}", Some("memcached: -m 1000 is not")),
            ("-m 1023 -e {lease}", Some("give -m 1024")),
            ("-m 1024 -e {lease} -m 64", Some("or lease 64M")),
            ("-P m1024 -e {lease}", Some("no -m (64M)")),
            ("-e {lease} -- -m 1024", Some("no -m (64M)")),
            ("-m x -e {lease}", Some("give -m 1024")),
            ("-m 99999999999999999999 -e {lease}", Some("give -m 1024")),
            ("-m 1024", Some("add -e {lease}")),
            ("-m 1024 -e /dev/shm/m", Some("add -e {lease}")),
            ("-m 1024 -e", Some("add -e {lease}")),
        ] {
            let list: Vec<_> = words.split(' ').collect();
            let refusal = refusal("/usr/bin/memcached", &list);
            match mend {
                None => assert_eq!(refusal, None, "{words}"),
                Some(mend) => {
                    assert!(refusal.as_ref().unwrap().contains(mend), "{words}: {refusal:?}")
                }
            }
        }
    }
}
