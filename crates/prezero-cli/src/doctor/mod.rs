//! `prezero doctor`: whether this machine is one where prezero gains, and what would help.
//!
//! Each finding has three parts: what is, what that means, and the mend where there is one. [`findings`] reads `/proc`
//! and `/sys` below a root, so that tests have machines of their own.

mod findings;
mod host;

use anyhow::Result;
use prezero_sys::memory::{promises, reservation::has_small_pages};
use serde_json::json;

use self::findings::{Finding, Mark, UNKNOWN};
use self::host::Host;
use prezero_command::library;

/// The command line of `prezero doctor`.
#[derive(clap::Args)]
#[command(after_help = "Example: prezero doctor --json | jq '.findings[] | select(.mend)'")]
pub struct Doctor {
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

impl Doctor {
    /// Looks and prints.
    ///
    /// # Errors
    /// Standard output takes no more.
    pub fn run(&self) -> Result<()> {
        let host = Host::here();
        let mut findings = vec![of_library(), of_kernel()];
        findings.extend(findings::all(&host));
        // Some terminals do not know how wide they are.
        let screen = rustix::termios::tcgetwinsize(std::io::stdout()).map_or(0, |size| size.ws_col);
        let columns = if screen > 0 { screen.into() } else { usize::MAX };
        let text = if self.json { as_json(&findings) } else { as_text(&findings, columns) };
        prezero_sys::print!("{text}\n")?;
        Ok(())
    }
}

/// The library that `prezero run` preloads.
fn of_library() -> Finding {
    match library::find(library::ALLOCATOR) {
        Ok(path) => Finding::good("library", path.display(), "`prezero run` finds it"),
        Err(error) => Finding::bad("library", error, "`prezero run` fails", "make build"),
    }
}

/// What the zone relies on, tried here and now.
fn of_kernel() -> Finding {
    const WHAT: &str = "memory that is given back";
    if !has_small_pages() {
        let means = "prezero knows pages of 4 KiB, so `prezero run` makes no zone";
        return Finding::bad("pages", "larger", means, "a kernel with pages of 4 KiB");
    }
    if !promises::releases_to_zero() {
        let means = "an emulator takes MADV_DONTNEED for a hint, so `prezero run` makes no zone";
        return Finding::bad(WHAT, "keeps its content", means, "qemu-user 7.1 or later, or none");
    }
    if !promises::tells_residency() {
        let means = "mincore does not know what was touched, so sparse blocks are cleared whole";
        return Finding::note(WHAT, "is zero", means, None);
    }
    Finding::good(WHAT, "is zero", "absent pages cost no clear")
}

fn as_text(findings: &[Finding], columns: usize) -> String {
    let options = textwrap::Options::new(columns).subsequent_indent("      ").break_words(false);
    let mut lines = vec![];
    for Finding { mark, what, is, means, mend } in findings {
        lines.push(format!("{:<5} {what}: {is}", mark.name()));
        lines.push(format!("      {means}"));
        lines.extend(mend.as_ref().map(|mend| format!("      mend: {mend}")));
    }
    lines.push(verdict(findings));
    lines.iter().map(|line| textwrap::fill(line, &options)).collect::<Vec<_>>().join("\n")
}

fn verdict(findings: &[Finding]) -> String {
    let count = |mark: Mark| findings.iter().filter(|each| each.mark == mark).count();
    let unknown = findings.iter().filter(|each| each.is == UNKNOWN).count();
    if unknown > 0 && count(Mark::Bad) == 0 {
        return format!(
            "Of this machine too little is known: {unknown} unknown, nothing seen that stands in the way."
        );
    }
    match (count(Mark::Bad), count(Mark::Note)) {
        (0, 0) => "This machine is one where prezero gains.".into(),
        (0, 1) => "This machine is one where prezero gains; 1 note.".into(),
        (0, notes) => format!("This machine is one where prezero gains; {notes} notes."),
        (1, _) => "1 thing stands in the way here; its mend is above.".into(),
        (bad, _) => format!("{bad} things stand in the way here; their mends are above."),
    }
}

fn as_json(findings: &[Finding]) -> String {
    let each = findings.iter().map(|each| {
        json!({
            "mark": each.mark.name(),
            "what": each.what,
            "is": each.is,
            "means": each.means,
            "mend": each.mend,
        })
    });
    let all: Vec<_> = each.collect();
    format!("{:#}", json!({ "findings": all, "verdict": verdict(findings) }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_finding_is_told_in_full_and_the_end_says_how_many_stand_in_the_way() {
        let good = Finding::good("a", "1", "well");
        let bad = Finding::bad("b", "2", "ill", "c");
        let text = as_text(&[good, bad], usize::MAX);
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(lines[..2], ["good  a: 1", "      well"]);
        assert_eq!(lines[2..5], ["bad   b: 2", "      ill", "      mend: c"]);
        assert!(lines[5].starts_with("1 thing stands"), "{text}");
        let json = as_json(&[Finding::note("n", "3", "so", None)]);
        assert!(json.contains("\"mend\": null") && json.contains("gains; 1 note."), "{json}");
        let dark = as_text(&[Finding::note("n", UNKNOWN, "so", None)], usize::MAX);
        assert!(
            dark.ends_with("too little is known: 1 unknown, nothing seen that stands in the way."),
            "{dark}"
        );
    }

    #[test]
    fn on_a_narrow_screen_each_line_goes_on_below_its_text() {
        let means = "large blocks begin with pages of 4 KiB: see free page reporting";
        let text = as_text(&[Finding::bad("b", "2", means, "sysctl vm.nr_hugepages=512")], 40);
        assert!(text.lines().all(|line| line.len() <= 40), "{text}");
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(
            lines[1..3],
            ["      large blocks begin with pages of 4", "      KiB: see free page reporting"]
        );
    }
}
