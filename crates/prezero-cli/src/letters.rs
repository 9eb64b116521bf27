//! Text as a terminal shows it: its columns, and the letters of its locale.
//!
//! A locale that is named and is not UTF-8 has ASCII alone. Where none is named, UTF-8 is taken for granted.

use std::io::IsTerminal;

/// Columns of standard output, where it is a terminal that says so.
pub fn columns() -> Option<usize> {
    let output = std::io::stdout();
    let size = rustix::termios::tcgetwinsize(&output).ok().filter(|_| output.is_terminal());
    size.map(|size| size.ws_col.into()).filter(|columns| *columns > 0)
}

/// Whether the locale has letters beyond ASCII.
fn has_all(variable: impl Fn(&str) -> Option<String>) -> bool {
    let mut named = ["LC_ALL", "LC_CTYPE", "LANG"].into_iter().filter_map(variable);
    named.find(|name| !name.is_empty()).is_none_or(|name| {
        let name = name.to_lowercase();
        name.contains("utf-8") || name.contains("utf8")
    })
}

/// The text in letters that the locale has.
pub fn shown(text: String) -> String {
    if has_all(|name| std::env::var(name).ok()) { text } else { ascii(&text) }
}

/// Borders, bars and signs of this command in ASCII; other letters stay.
fn ascii(text: &str) -> String {
    let letter = |letter| match letter {
        '±' => "+-".to_string(),
        '─' | '━' | '═' | '╌' => "-".into(),
        '│' | '┃' | '┆' | '║' => "|".into(),
        '▁' | '▂' => ".".into(),
        '▃' | '▄' => ":".into(),
        '▅' | '▆' => "=".into(),
        '▇' | '█' => "#".into(),
        '·' | '•' => "*".into(),
        '…' => "~".into(),
        '\u{2500}'..='\u{257f}' => "+".into(),
        other => other.to_string(),
    };
    text.chars().map(letter).collect()
}

/// Breaks lines between words, such that each fits where a word does.
pub fn folded(text: &str, columns: Option<usize>) -> String {
    let Some(columns) = columns else { return text.into() };
    let mut lines: Vec<String> = vec![];
    for word in text.split(' ') {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= columns => {
                *line += " ";
                *line += word;
            }
            _ => lines.push(word.into()),
        }
    }
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_locale_that_is_named_without_utf_8_has_ascii_alone() {
        let has = |all: &'static [(&str, &str)]| {
            has_all(move |name| {
                all.iter().find(|(it, _)| *it == name).map(|(_, value)| value.to_string())
            })
        };
        assert!(has(&[]) && has(&[("LC_ALL", ""), ("LANG", "de_DE.UTF-8")]));
        assert!(has(&[("LC_ALL", "C.utf8"), ("LANG", "C")]));
        assert!(!has(&[("LC_ALL", "C"), ("LANG", "C.UTF-8")]) && !has(&[("LC_CTYPE", "POSIX")]));
        let table = ascii("┌──┬╴\n│1 ± 2 %│\n╞══╪╡ ▁█");
        assert_eq!(table, "+--++\n|1 +- 2 %|\n+--++ .#");
        assert!(table.is_ascii());
    }

    #[test]
    fn lines_break_between_words() {
        let text = "no difference beyond 1.2 %: it asks for nothing";
        assert_eq!(folded(text, None), text);
        for columns in [12, 20, 40, 80] {
            let folded = folded(text, Some(columns));
            assert!(folded.lines().all(|line| line.chars().count() <= columns), "{folded}");
            assert_eq!(folded.replace('\n', " "), text);
        }
    }
}
