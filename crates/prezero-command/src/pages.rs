//! Man pages, from the definitions that a command line is read by.

use std::path::Path;

use anyhow::{Context, Result};
use clap::Command;

/// A page for a command and one for each of its own, with what `sections` has beside what the command line is read by.
///
/// # Errors
/// One cannot be written.
pub fn write(command: &Command, folder: &Path, sections: fn(&str) -> &'static str) -> Result<()> {
    let name = command.get_display_name().unwrap_or_else(|| command.get_name()).to_string();
    let page = clap_mangen::Man::new(command.clone())
        .title(name.to_uppercase())
        .source(concat!("prezero ", env!("CARGO_PKG_VERSION")))
        .manual("User commands");
    let file = folder.join(format!("{name}.1"));
    let mut text = vec![];
    page.render(&mut text)?;
    // The empty date needs its quotes: without them what follows it moves into its place.
    let text = String::from_utf8(text)?.replacen(" 1  \"", " 1 \"\" \"", 1);
    let text = in_lines(&text) + sections(&name);
    std::fs::write(&file, text).with_context(|| format!("{}", file.display()))?;
    let mut shown = command.get_subcommands().filter(|each| !each.is_hide_set());
    shown.try_for_each(|each| write(each, folder, sections))
}

/// The page with what stands below a command's help in the lines in which it stands there: examples
/// that run into each other are none.
fn in_lines(page: &str) -> String {
    let Some((above, below)) = page.split_once(".SH EXTRA\n") else { return page.into() };
    let (examples, rest) = below.split_at(below.find("\n.SH").map_or(below.len(), |at| at + 1));
    let lines: Vec<_> = examples.lines().collect();
    format!("{above}.SH EXAMPLES\n.ad l\n{}\n.ad b\n{rest}", lines.join("\n.br\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn examples_keep_their_lines() {
        let page = in_lines(".TH a\n.SH EXTRA\nExamples:\n  a b\n  c d\n.SH VERSION\nv1\n");
        let wanted = ".TH a\n.SH EXAMPLES\n.ad l\nExamples:\n.br\n  a b\n.br\n  c d\n.ad b\n.SH VERSION\nv1\n";
        assert_eq!(page, wanted);
        assert_eq!(in_lines(".TH a\n"), ".TH a\n");
    }
}
