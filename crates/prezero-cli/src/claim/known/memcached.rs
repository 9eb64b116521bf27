//! memcached: `-m MIB -e {lease}`.

use prezero::Size;

use super::{Line, Offer};

/// Letters of memcached's options that have a value.
const VALUES: &str = "abBcDefIlmnNoPpRstuUY";
const FILE: Name = Name { letter: 'e', long: "memory-file" };
const LIMIT: Name = Name { letter: 'm', long: "memory-limit" };
const USER: Name = Name { letter: 'u', long: "user" };

/// memcached without a path leaves the lease alone; with one it makes the file as large as its
/// limit, which a lease refuses, and dies of that.
pub fn look(line: &Line, offer: &Offer<'_>) -> Result<(), String> {
    fits(line, offer)?;
    match is_root() && given(&line.words(), USER).is_empty() {
        true => Err("memcached: it refuses to run as root; add -u USER".into()),
        false => Ok(()),
    }
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

fn fits(line: &Line, offer: &Offer<'_>) -> Result<(), String> {
    let words = line.words();
    let value = |name| given(&words, name).pop().and_then(|option| option.value);
    if !value(FILE).is_some_and(|file| offer.is_lease(file)) {
        return Err("memcached: it does not use the lease; add -e {lease}".into());
    }
    // Of anything else than a number memcached takes what it begins with.
    let given = value(LIMIT);
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

/// Takes its file away: the memory of `-m` is its own then.
pub fn plain(line: &mut Line) {
    let words = line.words();
    let edits = given(&words, FILE).into_iter().flat_map(|option| {
        let before = (!option.before.is_empty()).then(|| format!("-{}", option.before));
        let value = option.is_apart.then_some((option.number + 1, None));
        [(option.number, before)].into_iter().chain(value)
    });
    let edits = edits.collect();
    line.edit(edits);
}

/// An option.
#[derive(Clone, Copy)]
struct Name {
    letter: char,
    long: &'static str,
}

/// An option as it was given.
#[derive(Debug)]
struct Given<'a> {
    /// Of its word.
    number: usize,
    /// Letters before it in its word.
    before: &'a str,
    value: Option<&'a str>,
    /// Whether its value is the next word.
    is_apart: bool,
}

/// An option wherever `getopt_long` finds it: its name whole or cut short, its letter behind others.
/// Of several the last holds.
fn given<'a>(words: &[&'a str], name: Name) -> Vec<Given<'a>> {
    let mut found = vec![];
    let mut number = 0;
    while let Some(&word) = words.get(number).filter(|word| **word != "--") {
        let (mut is_it, mut before, mut joined) = (false, "", None);
        // Whether the next word is the value of this one.
        let mut takes_next = false;
        if let Some(long) = word.strip_prefix("--") {
            let (given, value) = long.split_once('=').map_or((long, None), |(a, b)| (a, Some(b)));
            // Two names may begin alike.
            let enough = name.long.find('-').unwrap_or(0) + 1;
            is_it = given.len() > enough && name.long.starts_with(given);
            joined = value;
            takes_next = is_it && joined.is_none();
        } else if let Some(letters) = word.strip_prefix('-')
            && let Some(at) = letters.find(|letter| VALUES.contains(letter))
        {
            is_it = letters[at..].starts_with(name.letter);
            before = &letters[..at];
            joined = Some(&letters[at + 1..]).filter(|rest| !rest.is_empty());
            takes_next = joined.is_none();
        }
        if is_it {
            let apart = words.get(number + 1).copied().filter(|_| takes_next);
            let value = joined.or(apart);
            found.push(Given { number, before, value, is_apart: apart.is_some() });
        }
        number += 1 + usize::from(takes_next);
    }
    found
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::super::tests::{OFFER, line};
    use super::*;

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
            let list: Vec<_> = ["/usr/bin/memcached"].into_iter().chain(words.split(' ')).collect();
            let offer = Offer { path: Some(Path::new("/run/lease")), ..OFFER };
            let refusal = fits(&line(&list), &offer).err();
            match mend {
                None => assert_eq!(refusal, None, "{words}"),
                Some(mend) => {
                    assert!(refusal.as_ref().unwrap().contains(mend), "{words}: {refusal:?}")
                }
            }
        }
    }

    #[test]
    fn root_gives_it_a_user() {
        for (words, has_user) in [
            ("-e {lease} -m 1024", false),
            ("-e {lease} -m 1024 -o u", false),
            ("-e {lease} -m 1024 -u nobody", true),
            ("-vunobody -e {lease} -m 1024", true),
            ("--user=root -e {lease} -m 1024", true),
        ] {
            let list: Vec<_> = ["memcached"].into_iter().chain(words.split(' ')).collect();
            let refusal = look(&line(&list), &OFFER).err();
            let refused = refusal.is_some_and(|text| text.ends_with("add -u USER"));
            assert_eq!(refused, is_root() && !has_user, "{words}");
        }
    }

    #[test]
    fn without_a_lease_its_file_goes_and_nothing_else() {
        for (words, left) in [
            ("-m 1024 -e {lease} -v", "-m 1024 -v"),
            ("-vve{lease} -m 1024", "-vv -m 1024"),
            ("-ve {lease} -m 1024", "-v -m 1024"),
            ("--memory-file={lease} -m 1024", "-m 1024"),
            ("-e /a -m 1024 --memory-f {lease}", "-m 1024"),
            ("-s -e -m 1024", "-s -e -m 1024"),
        ] {
            let list: Vec<_> = ["memcached"].into_iter().chain(words.split(' ')).collect();
            let mut line = line(&list);
            plain(&mut line);
            assert_eq!(line.words().join(" "), left, "{words}");
        }
    }
}
