//! Cloud Hypervisor: `--memory size=0 --memory-zone id=m,size=4G,file={lease},shared=on`, and `--restore` of a snapshot whose
//! zone is that of `--path`.

use super::{Line, Offer};

/// A file that is not shared is mapped privately, and each page that the guest writes is copied. A restore on demand waits for
/// touches of missing pages. A lease has all: the guest would read zeroes instead of its memory.
pub fn look(line: &Line, offer: &Offer<'_>) -> Result<(), String> {
    for word in line.words() {
        let value = |key| word.split(',').find_map(|part| part.strip_prefix(key));
        let is_shared = value("shared=").is_some_and(|on| ["on", "true"].contains(&on));
        if value("file=").is_some_and(|file| offer.is_lease(file)) && !is_shared {
            return Err(format!(
                "{word}: a private mapping copies each page that the guest writes; add shared=on"
            ));
        }
        if value("memory_restore_mode=") == Some("ondemand") {
            return Err(format!("{word}: the guest would read zeroes; take mode copy"));
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

    #[test]
    fn a_restore_on_demand_is_refused() {
        for (mode, good) in [
            ("", true),
            (",memory_restore_mode=copy", true),
            (",memory_restore_mode=ondemand", false),
        ] {
            let restore = format!("source_url=file:///snapshot{mode}");
            let line = line(&["cloud-hypervisor", "--restore", &restore]);
            assert_eq!(look(&line, &OFFER).is_ok(), good, "{restore}");
        }
    }
}
