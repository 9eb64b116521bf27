//! The options of a JVM, wherever they stand: variables, arguments, and the files that those name.
//!
//! A JVM reads `JAVA_TOOL_OPTIONS`, `JDK_JAVA_OPTIONS`, its arguments and `_JAVA_OPTIONS`, in this
//! order. An argument `@FILE`, `-XX:VMOptionsFile=FILE` or `-XX:Flags=FILE` stands for what is in the
//! file. Of an option that is given several times the last holds. Arguments behind the main class
//! are read as well: programs do not have options of these names.

use std::fmt;

/// What the options are read from.
#[expect(missing_debug_implementations, reason = "closures have none")]
pub struct Around<'a> {
    /// The value of a variable.
    pub variable: &'a dyn Fn(&str) -> Option<String>,
    /// What is in a file.
    pub file: &'a dyn Fn(&str) -> Option<String>,
}

/// Where an option stands.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Place {
    /// In the arguments.
    Arguments,
    /// In this variable.
    Variable(&'static str),
    /// In this file.
    File(String),
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::Arguments => f.write_str("the arguments"),
            Place::Variable(name) => f.write_str(name),
            Place::File(name) => f.write_str(name),
        }
    }
}

/// All options, in the order in which they are read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Options(Vec<(String, Place)>);

impl Options {
    /// The options of a JVM with these arguments.
    pub fn read<'a>(arguments: impl Iterator<Item = &'a str>, around: &Around<'_>) -> Options {
        let mut options = Options(vec![]);
        let of_variable = |options: &mut Options, name| {
            for word in (around.variable)(name).iter().flat_map(|text| tokens(text)) {
                options.add(word, Place::Variable(name), around);
            }
        };
        of_variable(&mut options, "JAVA_TOOL_OPTIONS");
        of_variable(&mut options, "JDK_JAVA_OPTIONS");
        for word in arguments {
            options.add(word.to_owned(), Place::Arguments, around);
        }
        of_variable(&mut options, "_JAVA_OPTIONS");
        options
    }

    fn add(&mut self, word: String, place: Place, around: &Around<'_>) {
        let files = [("@", ""), ("-XX:VMOptionsFile=", ""), ("-XX:Flags=", "-XX:")];
        let named =
            files.iter().find_map(|(start, prefix)| Some((word.strip_prefix(start)?, prefix)));
        match named {
            Some((file, prefix)) => {
                let text = (around.file)(file).unwrap_or_default();
                let place = Place::File(file.to_owned());
                let all = tokens(&text).into_iter();
                self.0.extend(all.map(|token| (format!("{prefix}{token}"), place.clone())));
            }
            None => self.0.push((word, place)),
        }
    }

    /// What follows `start` in the last option that begins with it, and where that stands.
    pub fn last(&self, start: &str) -> Option<(&str, &Place)> {
        self.0.iter().rev().find_map(|(option, place)| Some((option.strip_prefix(start)?, place)))
    }

    /// Whether the JVM only tells something and runs no program: start scripts ask for its version first.
    pub fn only_tells(&self) -> bool {
        const TELLS: [&str; 13] = [
            "-version",
            "--version",
            "-fullversion",
            "--full-version",
            "-help",
            "--help",
            "-h",
            "-?",
            "-X",
            "--help-extra",
            "--list-modules",
            "--dry-run",
            "--validate-modules",
        ];
        const WITH_VALUE: [&str; 9] = [
            "-cp",
            "-classpath",
            "--class-path",
            "-p",
            "--module-path",
            "--upgrade-module-path",
            "--add-modules",
            "--describe-module",
            "-d",
        ];
        let mut words = self.0.iter().map(|(word, _)| word.as_str());
        while let Some(word) = words.next() {
            if TELLS.contains(&word) {
                return true;
            }
            if WITH_VALUE.contains(&word) {
                words.next();
            } else if !word.starts_with('-') || word == "-jar" || word == "-m" || word == "--module"
            {
                // What follows the program is the program's.
                return false;
            }
        }
        false
    }

    /// Bytes of the largest heap, where they are told.
    pub fn heap(&self) -> Option<usize> {
        let (heap, _) = self.last("-Xmx").or_else(|| self.last("-XX:MaxHeapSize="))?;
        heap.to_uppercase().parse::<crate::Size>().ok().map(|heap| heap.0)
    }

    /// Where options stand that begin so.
    pub fn places<'a>(&'a self, start: &'a str) -> impl Iterator<Item = &'a Place> {
        let of_it = self.0.iter().filter(move |(option, _)| option.starts_with(start));
        of_it.map(|(_, place)| place)
    }
}

/// The words of a text: quotes keep blanks, a backslash in them the next character, and what
/// follows a `#` at the start of a word is a remark.
pub fn tokens(text: &str) -> Vec<String> {
    let (mut all, mut word, mut quote) = (vec![], None::<String>, None);
    let mut characters = text.chars();
    while let Some(character) = characters.next() {
        match (quote, character) {
            (Some(end), _) if character == end => quote = None,
            (Some(_), '\\') => word.get_or_insert_default().extend(characters.next()),
            (None, '"' | '\'') => {
                quote = Some(character);
                word.get_or_insert_default();
            }
            (None, _) if character.is_whitespace() => all.extend(word.take()),
            (None, '#') if word.is_none() => while characters.next().is_some_and(|c| c != '\n') {},
            _ => word.get_or_insert_default().push(character),
        }
    }
    all.extend(word);
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAP: &str = "-XX:AllocateHeapAt=";

    fn read(words: &str, variables: &[(&str, &str)], files: &[(&str, &str)]) -> Options {
        let of = |all: &[(&str, &str)], name: &str| {
            all.iter().find(|(each, _)| *each == name).map(|(_, text)| (*text).to_owned())
        };
        let (variable, file) = (|name: &str| of(variables, name), |name: &str| of(files, name));
        Options::read(words.split(' '), &Around { variable: &variable, file: &file })
    }

    #[test]
    fn an_option_is_found_wherever_it_stands() {
        let heap = [("opts", "# a heap\n-Xmx1g\n  \"-XX:AllocateHeapAt=/my dir\"")];
        let flags = [("opts", "+UseG1GC 'AllocateHeapAt=/my dir'")];
        let file = Place::File("opts".into());
        for (words, variables, files, place) in [
            ("-XX:AllocateHeapAt=/t Main", &[][..], &[][..], Place::Arguments),
            ("@opts Main", &[], &heap[..], file.clone()),
            ("-XX:VMOptionsFile=opts Main", &[], &heap, file.clone()),
            ("-XX:Flags=opts Main", &[], &flags, file.clone()),
            (
                "Main",
                &[("JAVA_TOOL_OPTIONS", " -Xmx1g -XX:AllocateHeapAt=/t ")],
                &[],
                Place::Variable("JAVA_TOOL_OPTIONS"),
            ),
            ("Main", &[("JDK_JAVA_OPTIONS", "@opts")], &heap, file),
            (
                "-XX:AllocateHeapAt=/x Main",
                &[("_JAVA_OPTIONS", "-XX:AllocateHeapAt=/t")],
                &[],
                Place::Variable("_JAVA_OPTIONS"),
            ),
        ] {
            let options = read(words, variables, files);
            let (dir, found) = options.last(HEAP).unwrap();
            assert_eq!(found, &place, "{words}");
            assert_eq!(dir, if matches!(place, Place::File(_)) { "/my dir" } else { "/t" });
        }
        assert_eq!(read("@none @ Main", &[], &[]).last(HEAP), None);
    }

    #[test]
    fn of_several_the_last_holds() {
        let options = read("-Xmx1g -Xmx2g Main", &[("JAVA_TOOL_OPTIONS", "-Xmx3g")], &[]);
        assert_eq!(options.last("-Xmx"), Some(("2g", &Place::Arguments)));
        assert_eq!(options.places("-Xmx").count(), 3);
    }

    #[test]
    fn words_are_cut_as_the_launcher_cuts_them() {
        for (text, words) in [
            ("", &[][..]),
            ("a b\n\tc", &["a", "b", "c"]),
            ("'a b' \"c \\\" d\"e", &["a b", "c \" de"]),
            ("a #b\nc#d", &["a", "c#d"]),
            ("# all", &[]),
            ("\"\" 'open", &["", "open"]),
        ] {
            assert_eq!(tokens(text), words, "{text}");
        }
    }

    #[test]
    fn a_jvm_that_runs_no_program_only_tells() {
        let around = Around { variable: &|_| None, file: &|_| None };
        let read = |line: &str| Options::read(line.split(' '), &around);
        for line in ["-version", "-Xmx512m -cp x --version", "-XX:+UseSerialGC -fullversion", "-X"]
        {
            assert!(read(line).only_tells(), "{line}");
        }
        for line in [
            "Hold",
            "-cp -version Hold",
            "-Xmx1g Hold -version",
            "-jar x.jar --help",
            "-showversion Hold",
            "",
        ] {
            assert!(!read(line).only_tells(), "{line}");
        }
        let heap = |line: &str| read(line).heap();
        assert_eq!(heap("-Xmx64m Hold"), Some(64 << 20));
        assert_eq!(heap("-Xmx1g -Xmx512M -cp x Hold"), Some(512 << 20));
        assert_eq!((heap("Hold"), heap("-Xmxmuch")), (None, None));
    }
}
