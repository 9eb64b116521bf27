//! Values on a benchmark's command line.

use std::str::FromStr;

use anyhow::{Result, bail};
use prezero::Size;

/// Those of `all` that are in `only`, or all of them if it is empty.
///
/// # Errors
/// One that is asked for is not among them; `what` they are is said.
pub fn chosen<'a, T>(
    all: &'a [T],
    name: impl Fn(&'a T) -> &'a str,
    only: &[String],
    what: &str,
) -> Result<Vec<&'a T>> {
    let names: Vec<_> = all.iter().map(&name).collect();
    if let Some(unknown) = only.iter().find(|only| !names.contains(&only.as_str())) {
        bail!("--only {unknown}: no such {what}; give some of {}", names.join(","));
    }
    Ok(all
        .iter()
        .filter(|each| only.is_empty() || only.iter().any(|it| it == name(each)))
        .collect())
}

/// A size of whole pages, in bytes.
///
/// # Errors
/// It is none.
pub fn whole_pages(text: &str) -> Result<usize, String> {
    match Size::from_str(text)?.0 {
        bytes if bytes > 0 && bytes % prezero::PAGE == 0 => Ok(bytes),
        _ => Err("not whole pages; give a multiple of 4K".into()),
    }
}

/// A number from one to `MOST`.
///
/// # Errors
/// It is none.
pub fn up_to<const MOST: usize>(text: &str) -> Result<usize, String> {
    let number = text.parse().ok().filter(|number| (1..=MOST).contains(number));
    number.ok_or(format!("not a number of them; give 1 to {MOST}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_is_asked_for_is_chosen_or_reported() {
        let only = |words: &[&str]| words.iter().map(ToString::to_string).collect::<Vec<_>>();
        let of = |words: &[&str]| chosen(&["a", "b"], |word| word, &only(words), "letter");
        assert_eq!((of(&[]).unwrap(), of(&["b"]).unwrap()), (vec![&"a", &"b"], vec![&"b"]));
        let error = of(&["c"]).unwrap_err().to_string();
        assert_eq!(error, "--only c: no such letter; give some of a,b");
    }

    #[test]
    fn numbers_out_of_range_are_refused() {
        assert_eq!(whole_pages("64K"), Ok(65536));
        assert!(whole_pages("0").is_err() && whole_pages("4097").is_err());
        assert_eq!(up_to::<8>("8"), Ok(8));
        assert!(up_to::<8>("9").unwrap_err().contains("1 to 8") && up_to::<8>("0").is_err());
    }
}
