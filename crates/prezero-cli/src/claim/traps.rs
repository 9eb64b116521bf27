//! What is known to go wrong with a lease, and can be seen in a command line: refused before
//! anything is leased, with the mend.

use std::borrow::Cow;
use std::ffi::{OsStr, OsString};
use std::path::Path;

use prezero::Size;

/// Whether `libprezero_claim.so` answers for the program.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Preloaded {
    Yes,
    No,
}

/// Refuses what would cost more than no lease.
pub fn look(
    name: &OsStr,
    arguments: &[OsString],
    lease: Size,
    preloaded: Preloaded,
) -> Result<(), String> {
    let words: Vec<Cow<'_, str>> = arguments.iter().map(|word| word.to_string_lossy()).collect();
    let program = Path::new(name).file_name().unwrap_or_default().to_string_lossy();
    qemu(&words)?;
    if program == "java" {
        java(&words, lease, preloaded)?;
    }
    Ok(())
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

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(program: &str, words: &[&str]) -> Option<String> {
        let words: Vec<OsString> = words.iter().map(OsString::from).collect();
        look(OsStr::new(program), &words, Size(1 << 30), Preloaded::Yes).err()
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
        let alone = look(OsStr::new("java"), &words, Size(1 << 30), Preloaded::No);
        assert!(alone.unwrap_err().contains("--preload"));
    }
}
