//! QEMU: `-object memory-backend-file,id=m,size=SIZE,mem-path={lease},share=on,align=2M
//! -machine memory-backend=m`.

use prezero::Size;

use super::{Line, Offer, PLACE, Preloaded};
use crate::qemu::{self, FILE, Mention, Object, mentions};

/// Whether a memory object of this line is of the lease.
pub fn names(line: &Line, offer: &Offer<'_>) -> bool {
    mentions(&line.words()).iter().any(|mention| is_of_the_lease(&mention.object, offer))
}

fn is_of_the_lease(object: &Object, offer: &Offer<'_>) -> bool {
    object.kind().as_deref() == Some(FILE)
        && object.get("mem-path").is_some_and(|path| offer.is_lease(&path))
}

/// Objects with a memory of their own are mapped privately here.
pub fn no_mem_path(line: &Line) -> Result<(), String> {
    let words = line.words();
    if words.windows(2).any(|pair| pair[0].ends_with("-mem-path") && pair[1].contains(PLACE)) {
        return Err(format!(
            "-mem-path: a private mapping copies each page that the guest writes; give {}",
            wanted("SIZE")
        ));
    }
    Ok(())
}

/// The arguments that a lease needs.
fn wanted(size: &str) -> String {
    format!(
        "-machine memory-backend=m -object memory-backend-file,id=m,size={size},mem-path={PLACE},share=on"
    )
}

/// A guest that maps its lease privately copies every page that it writes; one that uses it not at
/// all, or twice, has another memory than was meant.
pub fn look(line: &Line, offer: &Offer<'_>) -> Result<(), String> {
    no_mem_path(line)?;
    let words = line.words();
    let objects = mentions(&words);
    let of_the_lease: Vec<&Object> = objects
        .iter()
        .map(|mention| &mention.object)
        .filter(|object| is_of_the_lease(object, offer))
        .collect();
    for object in &of_the_lease {
        one(object, &words, offer)?;
    }
    let program = line.program();
    let places: Vec<_> = of_the_lease.iter().map(|object| object.get("offset")).collect();
    let has_same = places.iter().enumerate().any(|(at, place)| places[..at].contains(place));
    if has_same {
        return Err(format!(
            "{program}: two memories of the guest are the same lease; give each its own: \
             prezero-qemu, or one prezero claim --path in another"
        ));
    }
    // The library answers for a guest's anonymous shared memory.
    let is_unseen = offer.preloaded == Preloaded::Yes || words.contains(&"-readconfig");
    if of_the_lease.is_empty() && qemu::is_qemu(program) && !is_unseen {
        let size = offer.lease.to_string();
        return Err(format!("{program}: it does not use the lease; add {}", wanted(&size)));
    }
    Ok(())
}

fn one(object: &Object, words: &[&str], offer: &Offer<'_>) -> Result<(), String> {
    if object.is_on("share") != Some(true) {
        let mend = if object.is_json() { "\"share\":true" } else { "share=on" };
        return Err(format!(
            "{object}: a private mapping copies each page that the guest writes; add {mend}"
        ));
    }
    if object.bytes("align").is_some_and(|align| !align.is_multiple_of(offer.page)) {
        return Err(format!(
            "{object}: where huge pages do not begin each 4 KiB take a fault; give align={}",
            Size(offer.page as usize)
        ));
    }
    let size = object.bytes("size").map(|size| Size(size as usize));
    if let Some(size) = size.filter(|size| size.0 > offer.lease.0) {
        return Err(format!("{object}: it does not fit into {}; lease {size}", offer.lease));
    }
    let Some(id) = object.get("id") else { return Ok(()) };
    let uses = [
        format!("memory-backend={id}"),
        format!("memdev={id}"),
        format!("\"memory-backend\":\"{id}\""),
        format!("\"memdev\":\"{id}\""),
    ];
    let is_used = words.iter().any(|word| {
        let tight: String = word.split_whitespace().collect::<Vec<_>>().join(",");
        let parts: Vec<&str> = tight.split([',', '{', '}', '\'']).collect();
        uses.iter().any(|it| parts.contains(&&**it))
    });
    if is_used || words.contains(&"-readconfig") {
        return Ok(());
    }
    Err(format!("{object}: the guest does not use it; add -machine memory-backend={id}"))
}

/// Has the guest's memory begin where huge pages do.
pub fn fit(line: &mut Line, offer: &Offer<'_>) {
    change(line, offer, |object, _| {
        if object.get("align").is_none() {
            qemu::align(object, offer.page);
        }
    });
}

/// The guest with memory of QEMU's own.
pub fn plain(line: &mut Line, offer: &Offer<'_>) {
    change(line, offer, qemu::own);
}

/// Changes each memory object of the lease, where it stands.
fn change(line: &mut Line, offer: &Offer<'_>, how: impl Fn(&mut Object, &[&str])) {
    let words = line.words();
    let mut edits: Vec<(usize, Option<String>)> = vec![];
    // From the end: what stands before it keeps its place.
    for Mention { argument, place, mut object } in mentions(&words).into_iter().rev() {
        if !is_of_the_lease(&object, offer) {
            continue;
        }
        how(&mut object, &words);
        let whole = match edits.last() {
            Some((last, Some(text))) if *last == argument => text.clone(),
            _ => line.arguments[argument].to_str().unwrap_or_default().to_owned(),
        };
        edits.retain(|(number, _)| *number != argument);
        let (before, behind) = (&whole[..place.start], &whole[place.end..]);
        edits.push((argument, Some(format!("{before}{object}{behind}"))));
    }
    edits.reverse();
    line.edit(edits);
}

#[cfg(test)]
mod tests {
    use super::super::tests::{NOTHING, OFFER, line};
    use super::super::{self as known, Instead};
    use super::*;

    const ALONE: Offer<'static> = Offer { preloaded: Preloaded::No, ..OFFER };

    fn refusal(words: &[&str]) -> Option<String> {
        known::look(&line(words), &ALONE, &NOTHING).err()
    }

    fn guest(backend: &str) -> Option<String> {
        refusal(&["qemu-system-x86_64", "-machine", "q35,memory-backend=m", "-object", backend])
    }

    fn after(change: impl Fn(&mut Line), words: &[&str]) -> Vec<String> {
        let mut line = line(words);
        change(&mut line);
        line.words().iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_private_guest_is_refused_with_the_mend() {
        for (backend, good) in [
            ("memory-backend-file,mem-path={lease}", false),
            ("memory-backend-file,mem-path={lease},share=off", false),
            ("memory-backend-file,mem-path={lease},share=on", true),
            ("memory-backend-file,share=true,mem-path={lease}", true),
            ("memory-backend-file,share=on,mem-path={lease},share=off", false),
            ("qom-type=memory-backend-file,mem-path={lease}", false),
        ] {
            let refusal = guest(backend);
            assert_eq!(refusal.is_none(), good, "{backend}: {refusal:?}");
            assert!(refusal.is_none_or(|text| text.contains("add share=on")));
        }
        let other = "memory-backend-file,mem-path=/dev/hugepages";
        let private = "memory-backend-file,mem-path={lease}";
        assert!(refusal(&["kvm", "-object", other, "-object", private]).is_some());
        let by_path = Offer { path: Some("/run/lease".as_ref()), ..ALONE };
        let words = line(&["kvm", "-object", "memory-backend-file,mem-path=/run/lease"]);
        assert!(known::look(&words, &by_path, &NOTHING).is_err());
    }

    #[test]
    fn a_private_guest_is_found_as_libvirt_old_scripts_and_launchers_write_it() {
        let json = r#"{"qom-type":"memory-backend-file","size":1,"mem-path":"{lease}""#;
        assert!(guest(&format!("{json}}}")).unwrap().contains("add \"share\":true"));
        assert_eq!(guest(&format!("{json},\"share\":true}}")), None);
        let refused = refusal(&["kvm", "-m", "4G", "-mem-path", "{lease}"]).unwrap();
        assert!(refused.contains("mem-path={lease},share=on"), "{refused}");
        let private = "memory-backend-file,mem-path={lease}";
        assert!(refusal(&["numactl", "-N0", "kvm", "-object", private]).is_some());
        let script = format!("kvm -object {private} -machine memory-backend=m");
        assert!(refusal(&["sh", "-c", &script]).is_some());
        let script = format!("kvm -object {private},share=on,id=m -machine memory-backend=m");
        assert_eq!(refusal(&["sh", "-c", &script]), None);
    }

    #[test]
    fn a_guest_that_does_not_use_its_lease_is_refused_with_the_mend() {
        for words in [
            &["qemu-system-x86_64", "-m", "1G"][..],
            &["/usr/bin/kvm", "-object", "memory-backend-file,mem-path=/dev/hugepages,share=on"],
            &["kvm", "-object", "memory-backend-memfd,id=m,size=1G,share=on"],
        ] {
            assert!(refusal(words).unwrap().contains("add -machine memory-backend=m"), "{words:?}");
        }
        let shared = "memory-backend-file,id=m,size=1G,mem-path={lease},share=on";
        assert!(refusal(&["kvm", "-object", shared]).unwrap().contains("does not use it"));
        for user in [
            "memory-backend=m",
            "pc,memory-backend=m",
            "node,memdev=m",
            r#"{"driver":"pc-dimm","memdev":"m"}"#,
        ] {
            assert_eq!(refusal(&["kvm", "-object", shared, "-x", user]), None, "{user}");
        }
        assert!(refusal(&["kvm", "-object", shared, "-numa", "node,memdev=m2"]).is_some());
    }

    #[test]
    fn two_nodes_of_a_guest_never_share_a_lease() {
        let node =
            |more: &str| format!("memory-backend-file,size=512M,mem-path={{lease}},share=on{more}");
        let both = |a: &str, b: &str| refusal(&["kvm", "-object", &node(a), "-object", &node(b)]);
        assert!(both("", "").unwrap().contains("the same lease"));
        assert_eq!(both("", ",offset=512M"), None);
        // The second belongs to a claim of its own.
        let (first, second) = (node(",id=a"), node(",id=b"));
        let inner =
            ["prezero", "claim", "512M", "--", "kvm", "-object", &first, "-object", &second];
        assert_eq!(refusal(&inner), None);
    }

    #[test]
    fn a_guest_larger_than_its_lease_is_refused_with_the_mend() {
        let refused = guest("memory-backend-file,size=2G,mem-path={lease},share=on").unwrap();
        assert!(refused.contains("lease 2G"), "{refused}");
    }

    #[test]
    fn memory_begins_where_huge_pages_do() {
        let fitted = |words: &[&str]| after(|line| known::fit(line, &ALONE), words);
        let shared = "memory-backend-file,id=m,mem-path={lease},share=on";
        let aligned = format!("{shared},align=2097152");
        assert_eq!(fitted(&["kvm", "-object", shared, "-S"]), ["-object", &aligned, "-S"]);
        assert_eq!(fitted(&["kvm", "-object", &aligned]), ["-object", &aligned]);
        let script = |object: &str| format!("exec kvm -object '{object}' -object '{object}'; true");
        assert_eq!(fitted(&["sh", "-c", &script(shared)]), ["-c", &script(&aligned)]);
        assert!(guest(&format!("{shared},align=4K")).unwrap().contains("give align=2M"));
        assert_eq!(guest(&format!("{shared},align=1G")), None);
    }

    #[test]
    fn without_a_lease_the_guest_has_memory_of_its_own() {
        let shared = "memory-backend-file,id=m,size=1G,mem-path={lease},share=on,align=2M";
        let mut guest = line(&["kvm", "-object", shared, "-machine", "memory-backend=m"]);
        assert_eq!(known::plain(&mut guest, &ALONE, &NOTHING), Instead::Own(vec![]));
        assert_eq!(
            guest.words(),
            ["-object", "memory-backend-ram,id=m,size=1G", "-machine", "memory-backend=m"]
        );
    }
}
