//! The program and its arguments: which of them are this claim's, and where they name the lease.
//!
//! Behind a second `prezero claim` all belongs to that one: its `{lease}` is another memory.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;

/// What stands for the lease's path.
pub const PLACE: &str = "{lease}";
/// A claim in a shell's command.
const NESTED: &[u8] = b"prezero claim ";

/// See the module.
#[derive(Clone, Debug)]
pub struct Line {
    /// The program, as it was asked for.
    pub name: OsString,
    /// All of its arguments.
    pub arguments: Vec<OsString>,
    /// How many of them stand before a second claim.
    own: usize,
}

impl Line {
    /// Of a command that has a program.
    pub fn new(name: &OsStr, arguments: &[OsString]) -> Line {
        let words: Vec<&OsStr> =
            [name].into_iter().chain(arguments.iter().map(AsRef::as_ref)).collect();
        let is_claim = |pair: &[&OsStr]| {
            Path::new(pair[0]).file_name() == Some(OsStr::new("prezero")) && pair[1] == "claim"
        };
        // The program is the first of the words, and no argument.
        let nested = words.windows(2).position(is_claim);
        let own = nested.map_or(arguments.len(), |at| at.saturating_sub(1));
        Line { name: name.to_owned(), arguments: arguments.to_vec(), own }
    }

    /// The program's name without its directory.
    pub fn program(&self) -> &str {
        Path::new(&self.name).file_name().and_then(OsStr::to_str).unwrap_or_default()
    }

    /// The arguments that are this claim's, each as far as it is. One that is no text is empty.
    pub fn words(&self) -> Vec<&str> {
        self.arguments[..self.own].iter().map(|argument| own_text(argument).unwrap_or("")).collect()
    }

    /// Changes arguments, given by their numbers in order; `None` takes one away.
    pub fn edit(&mut self, edits: Vec<(usize, Option<String>)>) {
        for (number, edit) in edits.into_iter().rev() {
            match edit {
                Some(argument) => self.arguments[number] = argument.into(),
                None => {
                    self.arguments.remove(number);
                    self.own -= 1;
                }
            }
        }
    }

    /// The arguments with the path in place of each `{lease}` of this claim.
    pub fn placed(&self, place: &OsStr) -> Vec<OsString> {
        let (own, others) = self.arguments.split_at(self.own);
        let own = own.iter().map(|argument| replaced(argument, place));
        own.chain(others.iter().cloned()).collect()
    }
}

/// An argument as far as it stands before a second claim; `None`: it is no text.
fn own_text(argument: &OsStr) -> Option<&str> {
    Some(&argument.to_str()?[..own_part(argument.as_bytes())])
}

/// How much of an argument stands before a second claim in it.
fn own_part(argument: &[u8]) -> usize {
    let nested = argument.windows(NESTED.len()).position(|bytes| bytes == NESTED);
    nested.unwrap_or(argument.len())
}

/// The argument with the path in place of every `{lease}`.
fn replaced(argument: &OsStr, place: &OsStr) -> OsString {
    let argument = argument.as_bytes();
    let (mut rest, others) = argument.split_at(own_part(argument));
    let mut whole = vec![];
    while let Some(at) = rest.windows(PLACE.len()).position(|bytes| bytes == PLACE.as_bytes()) {
        whole.extend(&rest[..at]);
        whole.extend(place.as_bytes());
        rest = &rest[at + PLACE.len()..];
    }
    whole.extend(rest);
    whole.extend(others);
    OsString::from_vec(whole)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(words: &[&str]) -> Line {
        let words: Vec<OsString> = words.iter().map(OsString::from).collect();
        Line::new(&words[0], &words[1..])
    }

    #[test]
    fn every_place_becomes_the_path_and_nothing_else_changes() {
        for (argument, expected) in [
            ("{lease}", "/p/3"),
            ("a={lease},b={lease}!", "a=/p/3,b=/p/3!"),
            ("{leas}{lease", "{leas}{lease"),
            ("", ""),
        ] {
            assert_eq!(line(&["p", argument]).placed(OsStr::new("/p/3")), [expected]);
        }
        let raw = OsStr::from_bytes(b"\xff{lease}\xfe");
        assert_eq!(replaced(raw, OsStr::new("x")).as_bytes(), b"\xffx\xfe");
    }

    #[test]
    fn what_stands_behind_a_second_claim_is_left_alone() {
        for (words, placed) in [
            (
                &["env", "A={lease}", "prezero", "claim", "1G", "--", "qemu", "{lease}"][..],
                &["A=/p/3", "prezero", "claim", "1G", "--", "qemu", "{lease}"][..],
            ),
            (
                &["/usr/bin/prezero", "claim", "1G", "--", "cmp", "{lease}"],
                &["claim", "1G", "--", "cmp", "{lease}"],
            ),
            (
                &["sh", "-c", "cat {lease}; /usr/bin/prezero claim 1G -- cmp {lease} {lease}"],
                &["-c", "cat /p/3; /usr/bin/prezero claim 1G -- cmp {lease} {lease}"],
            ),
            (&["prezero", "run", "--", "claim", "{lease}"], &["run", "--", "claim", "/p/3"]),
        ] {
            assert_eq!(line(words).placed(OsStr::new("/p/3")), placed);
        }
    }

    #[test]
    fn arguments_are_taken_away_before_a_second_claim() {
        let mut line = line(&["p", "a", "-e", "{lease}", "prezero", "claim", "{lease}"]);
        line.edit(vec![(0, Some("b".into())), (1, None), (2, None)]);
        assert_eq!(line.words(), ["b"]);
        assert_eq!(line.placed(OsStr::new("x")), ["b", "prezero", "claim", "{lease}"]);
    }
}
