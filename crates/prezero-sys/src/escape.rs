//! Text of others where people read it: names of cgroups and programs, words of other processes.
//!
//! Contract: a character that commands a terminal, changes the order of others, or shows nothing becomes an escape.
//! Each other character stays as it is. Nothing here but a returned `String` allocates.

use std::fmt::{self, Write};

/// Letters to Unicode, and blank on a screen: fillers of Hangul, and a pattern of Braille without dots.
const BLANK: [char; 5] = ['\u{115f}', '\u{1160}', '\u{2800}', '\u{3164}', '\u{ffa0}'];

/// Whether the character stays. `escape_debug` knows controls, format characters and what is joined to others;
/// quotes and backslashes stay, as systemd has them in names.
pub fn is_plain(letter: char) -> bool {
    let is_printable = || letter.escape_debug().len() == 1 && !BLANK.contains(&letter);
    matches!(letter, ' '..='~') || is_printable()
}

/// Writes a character, or its escape.
///
/// # Errors
/// Those of `out`.
pub fn put(out: &mut impl Write, letter: char) -> fmt::Result {
    match letter {
        letter if is_plain(letter) => out.write_char(letter),
        letter if BLANK.contains(&letter) => write!(out, "{}", letter.escape_unicode()),
        letter => write!(out, "{}", letter.escape_debug()),
    }
}

/// Text on one line.
pub fn escape(text: &str) -> String {
    but_for(text, |_| false)
}

/// Text of several lines: their ends and tabs stay.
pub fn lines(text: &str) -> String {
    but_for(text, |letter| matches!(letter, '\n' | '\t'))
}

/// JSON, whose meaning stays: the escapes are those of its strings.
pub fn json(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '\n' => out.push(letter),
            letter if is_plain(letter) => out.push(letter),
            letter => {
                for unit in letter.encode_utf16(&mut [0; 2]) {
                    // Writing to a string does not fail.
                    let _ = write!(out, "\\u{unit:04x}");
                }
            }
        }
    }
    out
}

fn but_for(text: &str, stays: impl Fn(char) -> bool) -> String {
    let mut out = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            letter if stays(letter) => out.push(letter),
            // Writing to a string does not fail.
            letter => drop(put(&mut out, letter)),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Unicode's control, format, separating and private characters, its noncharacters, and blanks.
    const HOSTILE: &[(u32, u32)] = &[
        (0x00, 0x1f),
        (0x7f, 0xa0),
        (0xad, 0xad),
        (0x034f, 0x034f),
        (0x0600, 0x0605),
        (0x061c, 0x061c),
        (0x06dd, 0x06dd),
        (0x070f, 0x070f),
        (0x0890, 0x0891),
        (0x08e2, 0x08e2),
        (0x115f, 0x1160),
        (0x1680, 0x1680),
        (0x17b4, 0x17b5),
        (0x180b, 0x180f),
        (0x2000, 0x200f),
        (0x2028, 0x202f),
        (0x205f, 0x206f),
        (0x2800, 0x2800),
        (0x3000, 0x3000),
        (0x3164, 0x3164),
        (0xe000, 0xf8ff),
        (0xfe00, 0xfe0f),
        (0xfeff, 0xfeff),
        (0xffa0, 0xffa0),
        (0xfff0, 0xfffb),
        (0x110bd, 0x110bd),
        (0x13430, 0x1343f),
        (0x1bca0, 0x1bca3),
        (0x1d173, 0x1d17a),
        (0xe0000, 0xe0fff),
        (0xf0000, 0x10ffff),
    ];

    fn hostile() -> impl Iterator<Item = char> {
        HOSTILE.iter().flat_map(|&(first, last)| first..=last).filter_map(char::from_u32)
    }

    #[test]
    fn what_commands_turns_or_hides_is_escaped() {
        for letter in hostile() {
            let shown = escape(&letter.to_string());
            assert!(shown.len() > 1 && shown.is_ascii(), "{:x}: {shown:?}", u32::from(letter));
        }
        for (raw, escaped) in [
            ("\u{1b}]0;owned\u{7}", "\\u{1b}]0;owned\\u{7}"),
            ("a\nb\tc\r", "a\\nb\\tc\\r"),
            ("\u{9b}2J\u{7f}", "\\u{9b}2J\\u{7f}"),
            ("\u{202e}gnp\u{2066}\u{200b}\u{3164}", "\\u{202e}gnp\\u{2066}\\u{200b}\\u{3164}"),
        ] {
            assert_eq!(escape(raw), escaped);
        }
        assert_eq!(lines("a\n\tb\r\n\u{1b}"), "a\n\tb\\r\n\\u{1b}");
    }

    #[test]
    fn the_rest_is_as_it_was() {
        for text in [
            "/a b/\u{e9}/x\\x2dy\"'",
            "Schl\u{fc}ssel \u{645}\u{641} \u{5d0} \u{4e2d}\u{6587} \u{1f600}",
        ] {
            assert_eq!(
                (escape(text), lines(text), json(text)),
                (text.into(), text.into(), text.into())
            );
        }
    }

    #[test]
    fn json_means_the_same() {
        assert_eq!(
            json("{\"a\":\"\u{202e}x\u{7f}\u{e0001}\u{9b}\u{e9}\"}\n"),
            "{\"a\":\"\\u202ex\\u007f\\udb40\\udc01\\u009b\u{e9}\"}\n"
        );
    }
}
