//! Text of others where people read it: paths of cgroups, names of files.
//!
//! A terminal obeys what it is sent, so what cannot be printed is shown as an escape.

/// The text, with an escape in place of what is no printable character. Backslashes stay: systemd
/// has them in names.
pub fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '\\' | '"' | '\'' => out.push(letter),
            other => out.extend(other.escape_debug()),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_terminal_would_obey_is_escaped_and_the_rest_is_as_it_was() {
        assert_eq!(escape("/a b/\u{e9}/x\\x2dy\"'"), "/a b/\u{e9}/x\\x2dy\"'");
        for (raw, escaped) in [
            ("\u{1b}]0;owned\u{7}", "\\u{1b}]0;owned\\u{7}"),
            ("a\nb\tc\r", "a\\nb\\tc\\r"),
            ("\u{9b}2J\u{7f}", "\\u{9b}2J\\u{7f}"),
            ("\u{202e}gnp", "\\u{202e}gnp"),
        ] {
            assert_eq!(escape(raw), escaped);
            assert!(escape(raw).chars().all(|letter| !letter.is_control()));
        }
    }
}
