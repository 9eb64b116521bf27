//! A JVM: `-XX:AllocateHeapAt=DIR`, in its arguments, its variables, or a file of options.

use prezero::Size;
use prezero_host::jvm::{Around, Options, Place};

use super::{Instead, Line, Offer, Preloaded};

/// Where the heap is to be.
const HEAP: &str = "-XX:AllocateHeapAt=";
/// Variables of options.
const VARIABLES: [&str; 3] = ["JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS"];

fn options(line: &Line, around: &Around<'_>) -> Options {
    Options::read(line.words().into_iter(), around)
}

/// A JVM that is not told where to put its heap never asks for the lease, nor is one answered
/// without the library; and one that wants a larger heap than the lease does not start.
pub fn look(line: &Line, offer: &Offer<'_>, around: &Around<'_>) -> Result<(), String> {
    if offer.preloaded == Preloaded::No {
        return Err("java: it takes no path of memory; give prezero claim --preload".into());
    }
    let options = options(line, around);
    let heap = options.last("-Xmx").or_else(|| options.last("-XX:MaxHeapSize="));
    let heap = heap.and_then(|(heap, _)| heap.to_uppercase().parse::<Size>().ok());
    let lease = offer.lease;
    if let Some(heap) = heap.filter(|heap| heap.0 > lease.0) {
        return Err(format!("java: a heap of {heap} does not fit into {lease}; lease {heap}"));
    }
    if options.last(HEAP).is_some() {
        return Ok(());
    }
    Err("java: the heap is not put into the lease; add -XX:AllocateHeapAt=/tmp (any directory)"
        .into())
}

/// A heap that is told to be in a directory is in a file of it, maybe on a disk: so that goes. In a
/// file of options it stays, and the library answers with ordinary memory.
pub fn plain(line: &mut Line, around: &Around<'_>) -> Instead {
    let dropped = line.words().into_iter().enumerate().filter(|(_, word)| word.starts_with(HEAP));
    let dropped = dropped.map(|(number, _)| (number, None)).collect();
    let changed: Vec<_> = VARIABLES
        .into_iter()
        .filter_map(|name| Some((name, (around.variable)(name)?)))
        .filter(|(_, text)| text.contains(HEAP))
        .map(|(name, text)| (name, without(&text)))
        .collect();
    let variable = |name: &str| {
        let new = changed.iter().find(|(each, _)| *each == name).map(|(_, text)| text.clone());
        new.or_else(|| (around.variable)(name))
    };
    let left = options(line, &Around { variable: &variable, ..*around });
    if left.places(HEAP).any(|place| *place != Place::Arguments) {
        return Instead::File;
    }
    line.edit(dropped);
    Instead::Own(changed)
}

/// The options without those of the heap's directory.
fn without(text: &str) -> String {
    let words = text.split_inclusive(char::is_whitespace);
    words.filter(|word| !word.starts_with(HEAP)).collect()
}

#[cfg(test)]
mod tests {
    use super::super::tests::{NOTHING, OFFER, line};
    use super::*;

    const HERE: &str = "-XX:AllocateHeapAt=/tmp";

    fn refusal(words: &[&str], around: &Around<'_>) -> Option<String> {
        look(&line(words), &OFFER, around).err()
    }

    #[test]
    fn a_heap_that_is_not_in_the_lease_is_refused_with_the_mend() {
        assert!(refusal(&["/usr/bin/java", "-Xmx1g", "T"], &NOTHING).unwrap().contains(HERE));
        assert_eq!(refusal(&["java", "-Xmx1g", HERE, "T"], &NOTHING), None);
        let large = refusal(&["java", "-Xmx1025m", HERE, "T"], &NOTHING);
        assert!(large.unwrap().contains("lease 1025M"));
        let alone = Offer { preloaded: Preloaded::No, ..OFFER };
        assert!(look(&line(&["java", HERE]), &alone, &NOTHING).unwrap_err().contains("--preload"));
    }

    #[test]
    fn variables_and_files_are_read_as_the_jvm_reads_them() {
        let variable = |name: &str| (name == "JDK_JAVA_OPTIONS").then(|| format!("-Xmx1g {HERE}"));
        let around = Around { variable: &variable, ..NOTHING };
        assert_eq!(refusal(&["java", "T"], &around), None);
        assert!(refusal(&["java", "-Xmx2g", "T"], &around).unwrap().contains("lease 2G"));
        let file = |name: &str| (name == "opts").then(|| format!("-Xmx2g\n{HERE}\n"));
        let around = Around { file: &file, ..NOTHING };
        assert!(refusal(&["java", "@opts", "T"], &around).unwrap().contains("lease 2G"));
        assert_eq!(refusal(&["java", "@opts", "-Xmx1g", "T"], &around), None);
    }

    #[test]
    fn without_a_lease_the_heap_is_where_it_always_is() {
        let mut arguments = line(&["java", "-Xmx1g", HERE, "T"]);
        assert_eq!(plain(&mut arguments, &NOTHING), Instead::Own(vec![]));
        assert_eq!(arguments.words(), ["-Xmx1g", "T"]);

        let variable =
            |name: &str| (name == "JAVA_TOOL_OPTIONS").then(|| format!("-Da='b  c' {HERE} -Xmx1g"));
        let around = Around { variable: &variable, ..NOTHING };
        let changed = ("JAVA_TOOL_OPTIONS", "-Da='b  c' -Xmx1g".to_owned());
        assert_eq!(plain(&mut line(&["java", "T"]), &around), Instead::Own(vec![changed]));

        let file = |_: &str| Some(HERE.to_owned());
        let around = Around { file: &file, ..NOTHING };
        let mut of_file = line(&["java", "@opts", HERE, "T"]);
        assert_eq!(plain(&mut of_file, &around), Instead::File);
        assert_eq!(of_file.words(), ["@opts", HERE, "T"]);
    }
}
