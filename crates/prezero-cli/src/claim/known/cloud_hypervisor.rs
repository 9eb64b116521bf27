//! Cloud Hypervisor: `--memory size=0 --memory-zone id=m,size=4G,file={lease},shared=on`.

use super::{Line, Offer};

/// A file that is not shared is mapped privately, and each page that the guest writes is copied.
pub fn look(line: &Line, offer: &Offer<'_>) -> Result<(), String> {
    for word in line.words() {
        let value = |key| {
            let mut parts = word.split(',');
            parts.find_map(|part| part.split_once('=').filter(|(each, _)| *each == key))
        };
        let of_lease = value("file").is_some_and(|(_, file)| offer.is_lease(file));
        if of_lease && !value("shared").is_some_and(|(_, on)| ["on", "true"].contains(&on)) {
            return Err(format!(
                "{word}: a private mapping copies each page that the guest writes; add shared=on"
            ));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::tests::{OFFER, line};
    use super::*;

    #[test]
    fn a_private_zone_is_refused_with_the_mend() {
        for (zone, good) in [
            ("id=m,size=1G,file={lease},shared=on", true),
            ("id=m,size=1G,file={lease}", false),
            ("id=m,size=1G,file={lease},shared=off", false),
            ("id=m,size=1G,file=/dev/hugepages", true),
        ] {
            let line = line(&["cloud-hypervisor", "--memory", "size=0", "--memory-zone", zone]);
            assert_eq!(look(&line, &OFFER).is_ok(), good, "{zone}");
        }
    }
}
