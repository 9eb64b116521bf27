//! What is known to go wrong with a lease, and can be seen in a command line: refused before
//! anything is leased, with the mend.

use std::borrow::Cow;
use std::ffi::{OsStr, OsString};
use std::path::Path;

use prezero::Size;

/// Refuses what would cost more than no lease.
pub fn look(name: &OsStr, arguments: &[OsString], lease: Size) -> Result<(), String> {
    let words: Vec<Cow<'_, str>> = arguments.iter().map(|word| word.to_string_lossy()).collect();
    let program = Path::new(name).file_name().unwrap_or_default().to_string_lossy();
    qemu(&words)?;
    if program == "java" {
        java(&words, lease)?;
    }
    Ok(())
}

/// QEMU maps a file privately unless told to share it, and then copies every page that the
/// guest writes.
fn qemu(words: &[Cow<'_, str>]) -> Result<(), String> {
    let backend = words
        .iter()
        .find(|word| word.starts_with("memory-backend-file") && word.contains("mem-path={lease}"));
    let Some(backend) = backend else { return Ok(()) };
    let has = |option: &str| backend.split(',').any(|part| part == option);
    if !has("share=on") {
        return Err(format!(
            "{backend}: a private mapping copies each page that the guest writes; add share=on"
        ));
    }
    Ok(())
}

/// A JVM that is not told where to put its heap never asks for the lease, and one that wants a
/// larger heap than the lease does not start.
fn java(words: &[Cow<'_, str>], lease: Size) -> Result<(), String> {
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
        look(OsStr::new(program), &words, Size(1 << 30)).err()
    }

    #[test]
    fn a_private_guest_is_refused_with_the_mend() {
        for (backend, good) in [
            ("memory-backend-file,id=m,size=4G,mem-path={lease}", false),
            ("memory-backend-file,mem-path={lease},share=off", false),
            ("memory-backend-file,mem-path={lease},share=on", true),
            ("memory-backend-file,mem-path=/dev/hugepages", true),
        ] {
            let refusal = refusal("qemu-system-x86_64", &["-object", backend]);
            assert_eq!(refusal.is_none(), good, "{backend}: {refusal:?}");
            assert!(refusal.is_none_or(|text| text.contains("add share=on")));
        }
    }

    #[test]
    fn programs_that_would_not_take_the_lease_are_refused_with_the_mend() {
        let heap = "-XX:AllocateHeapAt=/tmp";
        assert!(refusal("/usr/bin/java", &["-Xmx1g", "T"]).unwrap().contains(heap));
        assert_eq!(refusal("java", &["-Xmx1g", heap, "T"]), None);
        assert!(refusal("java", &["-Xmx1025m", heap, "T"]).unwrap().contains("lease 1025M"));
        assert_eq!(refusal("sh", &["-c", "java"]), None);
    }
}
