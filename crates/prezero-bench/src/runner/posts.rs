//! What a post printed beside what is measured today, what it says, and lines that its program said elsewhere.

use anyhow::{Context, Result, ensure};
use prezero_command::spent::Spent;
use serde_json::Value;

use super::options::Options;
use super::said;
use crate::figure::{self, Better, Figure};
use crate::table::{Claim, Named, Sheet};

/// Adds what the post printed and what was brought from elsewhere, and judges what is said.
pub fn add(
    sheet: &Sheet,
    named: &[Named],
    table: &mut figure::Sheet,
    options: &Options,
    rows: &[(Vec<String>, String)],
) -> Result<()> {
    for row in &sheet.posted.post {
        let (words, values) = row.split_at(1 + sheet.labels.len());
        let words: Vec<&str> = words.iter().filter_map(toml::Value::as_str).collect();
        for (figure, value) in named.iter().zip(values) {
            let value = value.as_float().or(value.as_integer().map(|value| value as f64));
            table.extend(value.and_then(|value| of(figure, words[0], &words[1..], vec![value])));
        }
    }
    for each in options.all("add") {
        for (name, base, lines) in elsewhere(each)? {
            for (labels, said) in rows {
                let found = like(&lines, sheet, said);
                let labels: Vec<&str> = labels.iter().map(String::as_str).collect();
                for (nth, figure) in named.iter().enumerate() {
                    let read = |line: &&Value| {
                        said::samples(line, &Spent::default(), figure, nth, sheet.posted.skip).ok()
                    };
                    let samples = found.iter().filter_map(read).flatten().collect();
                    table.extend(of(figure, &name, &labels, samples));
                }
            }
            if let (Some(base), Some(gain)) = (base, &sheet.posted.elsewhere) {
                let place = |who: String| [vec![who], gain.of.clone()].concat();
                let says = format!("{name}, {}, against itself without the patches", gain.says);
                let (figure, own, least) = (gain.figure.clone(), place(name), Some(gain.least));
                judge(table, &Claim { says, figure, own, other: place(base), least, most: None });
            }
        }
    }
    for claim in &sheet.posted.claims {
        judge(table, claim);
    }
    Ok(())
}

fn of(figure: &Named, who: &str, labels: &[&str], samples: Vec<f64>) -> Option<Figure> {
    let better = if figure.more { Better::More } else { Better::Less };
    Some(Figure::of_samples(who, &figure.name, &figure.unit, samples)?.case(labels).better(better))
}

/// Says how many times as good the one is as the other, and whether that is as the post has it.
fn judge(table: &mut figure::Sheet, claim: &Claim) {
    let Claim { says, figure: name, own, other, least, most } = claim;
    let find = |place: &[String]| {
        let (who, of) = place.split_first()?;
        let is = |each: &&Figure| each.who == *who && each.name == *name && each.of == of;
        table.figures.iter().find(is)
    };
    let times = find(own).zip(find(other)).map(|(own, other)| own.times(other));
    let Some(times) = times.filter(|times| times.is_finite()) else { return };
    let held = match (least, most) {
        (None, None) => "",
        _ if least.is_none_or(|least| times >= least) && most.is_none_or(|most| times <= most) => {
            "held: "
        }
        _ => "did not hold: ",
    };
    table.says.push(format!("{held}{says}: {times:.2} times"));
}

/// Lines of a column: its name, the column that it is compared with, and the lines.
type Lines = (String, Option<String>, Vec<Value>);

/// Of `NAME=FILE` or `NAME=FILE,BASE`; the base comes first.
fn elsewhere(text: &str) -> Result<Vec<Lines>> {
    let (name, files) =
        text.split_once('=').with_context(|| format!("--add {text}: give NAME=FILE"))?;
    let (own, base) = files.split_once(',').map_or((files, None), |(own, base)| (own, Some(base)));
    let unpatched = format!("{name}, unpatched");
    let mut all = vec![];
    if let Some(base) = base {
        all.push((unpatched.clone(), None, lines(base)?));
    }
    all.push((name.into(), base.map(|_| unpatched), lines(own)?));
    Ok(all)
}

fn lines(file: &str) -> Result<Vec<Value>> {
    let text = std::fs::read(file).with_context(|| format!("--add {file}"))?;
    let text = String::from_utf8_lossy(&text);
    let all = text.lines().filter_map(|line| serde_json::from_str(line.trim()).ok());
    let lines: Vec<Value> = all.filter(|line: &Value| line["experiment"].is_string()).collect();
    ensure!(!lines.is_empty(), "--add {file}: no line of an experiment; see bench/seeds/all.sh");
    Ok(lines)
}

/// The lines that are of the same case as what was said here.
fn like<'a>(lines: &'a [Value], sheet: &Sheet, said: &str) -> Vec<&'a Value> {
    let Ok(here) = serde_json::from_str::<Value>(said) else { return vec![] };
    let many = |line: &Value| line["cycles"].as_array().map(|all| all.len() > 1);
    let is = |line: &&Value| {
        sheet.posted.same.iter().all(|key| line[key] == here[key]) && many(line) == many(&here)
    };
    lines.iter().filter(is).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figure::Across;
    use crate::table::CASES;

    #[test]
    fn lines_from_elsewhere_are_found_among_others() {
        let file = std::env::temp_dir().join(format!("prezero-lines-{}", std::process::id()));
        std::fs::write(
            &file,
            "booting\n{\"experiment\":\"write\",\"pause_us\":0,\"cycles\":[1]}\n{\"x\":2}\r\n",
        )
        .unwrap();
        let guest = elsewhere(&format!("guest={}", file.display())).unwrap().remove(0);
        assert_eq!((guest.1, guest.2.len()), (None, 1));
        let pair = elsewhere(&format!("guest={0},{0}", file.display())).unwrap();
        let names: Vec<_> =
            pair.iter().map(|(name, base, _)| (name.as_str(), base.as_deref())).collect();
        assert_eq!(names, [("guest, unpatched", None), ("guest", Some("guest, unpatched"))]);
        let sheet =
            CASES.benchmarks["seeds"].sheet.iter().find(|sheet| sheet.name == "write").unwrap();
        let here = |pause, cycles| {
            format!("{{\"experiment\":\"write\",\"pause_us\":{pause},\"cycles\":{cycles}}}")
        };
        assert_eq!(like(&guest.2, sheet, &here(0, "[7]")).len(), 1);
        assert_eq!(like(&guest.2, sheet, &here(0, "[7,7]")).len(), 0, "one is no loop");
        assert_eq!(like(&guest.2, sheet, &here(9, "[7]")).len(), 0);
        std::fs::write(&file, "nothing").unwrap();
        let error = elsewhere(&format!("guest={}", file.display())).unwrap_err();
        assert!(error.to_string().contains("no line of an experiment"), "{error}");
        std::fs::remove_file(file).unwrap();
    }

    #[test]
    fn claims_follow_the_figures() {
        let mut table = figure::Sheet::new("t", &["lines"], Across::Name);
        for (who, us) in [("a", 9.0), ("b", 3.0)] {
            table.push(Figure::new(who, "took", "us", us).case(&["1"]));
        }
        let place = |who: &str| vec![who.to_string(), "1".to_string()];
        let claim = |says: &str, own, least, most| Claim {
            says: says.into(),
            figure: "took".into(),
            own: place(own),
            other: place("a"),
            least,
            most,
        };
        for (least, most) in [(Some(3.0), None), (Some(3.1), None), (None, Some(3.1)), (None, None)]
        {
            judge(&mut table, &claim("it is faster", "b", least, most));
        }
        judge(&mut table, &claim("of nothing", "none", None, None));
        let said = ["held: ", "did not hold: ", "held: ", ""]
            .map(|held| format!("{held}it is faster: 3.00 times"));
        assert_eq!(table.says, said);
    }
}
