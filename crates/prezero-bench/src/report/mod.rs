//! `prezero bench report`: one page of HTML to show to a colleague.
//!
//! It needs no network and no script, follows the reader's choice of light or dark, and can be
//! printed. [`document`] is what was measured, [`head`] what the page says first, [`sections`] what each
//! benchmark has to show (and [`plain`] what the others do), [`plot`] the pictures. The JSON is
//! embedded as it was written.

mod document;
mod head;
mod plain;
mod plot;
mod sections;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use document::Document;

use super::progress;
use super::scratch::Scratch;

/// What is measured without `--from`: the arguments, and those that make it short.
const RUNS: [(&str, &[&str], &[&str]); 4] = [
    (
        "grid",
        &["--idle", "all"],
        &["--sizes", "64K,1M,16M", "--lines", "1,16,64", "--passes-s", "5"],
    ),
    ("seeds", &[], &["--mib", "64", "--runs", "1"]),
    ("waste", &[], &["--times", "0.3"]),
    ("disturb", &[], &["--rounds", "5", "--seconds", "0.1", "--pairs-s", "2"]),
];

/// The command line of `prezero bench report`.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  prezero bench report --quick\n  \
    prezero bench grid --json grid.json && prezero bench report --from grid.json --pictures .")]
pub struct Report {
    /// Files that benchmarks wrote with --json; without any grid, seeds, waste and disturb are run
    #[arg(long, value_delimiter = ',', num_args = 1.., value_name = "FILE")]
    from: Vec<PathBuf>,
    /// Where the page goes
    #[arg(long, short, value_name = "FILE", default_value = "prezero-report.html")]
    output: PathBuf,
    /// Write each picture into files of its own as well, wide and narrow, in this folder
    #[arg(long, value_name = "DIR")]
    pictures: Option<PathBuf>,
    /// Run less of everything: some ten minutes instead of an hour
    #[arg(long, conflicts_with = "from")]
    quick: bool,
}

impl Report {
    /// Measures if it must, and writes the page.
    pub fn run(&self) -> Result<()> {
        let scratch = Scratch::new()?;
        let measured;
        let files = if self.from.is_empty() {
            measured = self.measure(&scratch)?;
            &measured
        } else {
            &self.from
        };
        let mut documents = vec![];
        for file in files {
            let document = Document::read(file, &documents)?;
            documents.push(document);
        }
        ensure!(!documents.is_empty(), "interrupted before anything was measured");
        let html = page(&documents)?;
        std::fs::write(&self.output, html).with_context(|| {
            format!("--output {}: give a file that can be written", self.output.display())
        })?;
        println!("{}", self.output.display());
        self.write_pictures(&documents)
    }

    fn write_pictures(&self, documents: &[Document]) -> Result<()> {
        let Some(folder) = &self.pictures else { return Ok(()) };
        let named = |path: &Path| format!("--pictures {}", path.display());
        std::fs::create_dir_all(folder).with_context(|| named(folder))?;
        for document in documents {
            for section in sections::of(document)? {
                for (picture, kind, _) in &section.plots {
                    for (width, svg) in picture.alone() {
                        let file = folder.join(section.file(kind, width));
                        std::fs::write(&file, svg).with_context(|| named(&file))?;
                        println!("{}", file.display());
                    }
                }
            }
        }
        Ok(())
    }

    /// Runs the benchmarks, each as somebody at a terminal would. Ctrl-C is passed on to the one
    /// that runs, which writes what it has; the others are left out.
    fn measure(&self, scratch: &Scratch) -> Result<Vec<PathBuf>> {
        progress::listen();
        let own = std::env::current_exe().context("finding our own program")?;
        let mut files = vec![];
        for (nth, (name, arguments, short)) in RUNS.into_iter().enumerate() {
            if progress::interrupted() {
                break;
            }
            progress::heading(&format!("{name}, {} of {}", nth + 1, RUNS.len()));
            let file = scratch.file(format!("{name}.json"));
            let short = if self.quick { short } else { &[] };
            let mut command = Command::new(&own);
            command.arg(name).args(arguments).args(short);
            let status = progress::run(command.arg("--json").arg(&file).stdout(Stdio::null()))?;
            if progress::interrupted() && !file.exists() {
                break; // before it had anything to write
            }
            ensure!(status.success(), "bench {name}: {status}");
            files.push(file);
        }
        Ok(files)
    }
}

const STYLE: &str = "\
:root{color-scheme:light dark;--paper:#fff;--ink:#1b1b1b;--rule:#ccc;--soft:#f4f4f4}\
@media(prefers-color-scheme:dark){:root{--paper:#16181b;--ink:#e6e6e6;--rule:#444;--soft:#22262a}}\
@media print{:root{--paper:#fff;--ink:#000;--soft:#fff}figure{break-inside:avoid}}\
*{box-sizing:border-box}body{margin:0 auto;max-width:900px;padding:1rem;background:var(--paper);\
color:var(--ink);font:16px/1.45 system-ui,sans-serif}h1{font-size:1.6rem}h2{font-size:1.2rem;margin-top:2.2rem;\
border-top:1px solid var(--rule);padding-top:1rem}figure{margin:1rem 0}figcaption,small{font-size:.85rem}\
svg{display:block;max-width:100%;height:auto;overflow:visible}.narrow{display:none}\
@media screen and (max-width:880px){.wide{display:none}.narrow{display:block}}\
@media print{details>*{display:block}details::details-content{content-visibility:visible}}\
.scroll{overflow-x:auto}table{border-collapse:collapse;font-size:.85rem}th,td{padding:.15rem .5rem;\
text-align:right;border-bottom:1px solid var(--rule);vertical-align:top}th[scope=row]{text-align:left;\
font-weight:normal}.runs{min-width:44rem}.runs td,.runs th{text-align:left}.says{padding-left:1.2rem}summary{cursor:pointer;margin:.4rem 0}code{background:var(--soft);\
overflow-wrap:anywhere}";

fn page(documents: &[Document]) -> Result<String> {
    let mut sections = vec![];
    for document in documents {
        sections.extend(sections::of(document)?);
    }
    let mut html = format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\
         <link rel=\"icon\" href=\"data:,\"><title>prezero: report</title>\n<style>{STYLE}</style></head><body>\n{}",
        head::html(documents, &sections)
    );
    sections.iter().for_each(|section| html += &section.html());
    html += "<section><h2>Everything, as it was measured</h2><p>Each number in a table of this page says \
             in its <code>data-at</code> attribute where in this JSON it stands.</p>\n";
    for document in documents {
        // A script ends at its end tag, wherever that stands.
        let json = serde_json::to_string(&document.json)?.replace("</", "<\\/");
        html +=
            &format!("<script type=\"application/json\" id=\"{}\">{json}</script>\n", document.id);
    }
    Ok(html + "</section></body></html>\n")
}

/// For `compare`, which reads the same files.
pub fn read(path: &Path) -> Result<serde_json::Value> {
    Ok(Document::read(path, &[])?.json)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_grid_becomes_a_page_without_network_or_script() {
        let json: serde_json::Value =
            serde_json::from_str(include_str!("../../tests/grid.json")).unwrap();
        let html = page(&[Document { id: "grid".into(), json }]).unwrap();
        for forbidden in ["http://", "https://", "src=", "@import", "</script><script>alert"] {
            let without_names = html.replace("http://www.w3.org/", "");
            assert!(!without_names.contains(forbidden), "{forbidden}");
        }
        // 25.6 us of the fastest peer that kept its memory: 1.2; over prezero's 0.15.
        assert!(html.contains(">8.00</td>") && html.contains("\n8.00\n"), "the table and the plot");
        assert!(html.contains("data-at=\"grid#/modes/0/cells/0/results/2/ns/median\""));
        let said = "mean of 2 cells prezero is <span data-verdict=\"mean\">2.00</span> times as fast as the fastest peer; the worst, \
                    1M L=64, <span data-verdict=\"worst\">0.50</span> times; <span data-verdict=\"lost\">1</span> lost";
        assert_eq!(html.matches(said).count(), 2, "above, and where it is shown: {html}");
        assert_eq!(
            html.matches("Some CPU").count(),
            2,
            "the machine is told once, and in the JSON"
        );
    }

    #[test]
    fn what_is_embedded_cannot_end_its_script() {
        let json = serde_json::json!({"benchmark": "x", "command": "</script><b>"});
        let html = page(&[Document { id: "x".into(), json }]).unwrap();
        assert!(!html.contains("</script><b>"));
    }
}
