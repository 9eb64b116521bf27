//! Values on a benchmark's command line.

use std::str::FromStr;

use prezero::Size;

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
    fn numbers_out_of_range_are_refused() {
        assert_eq!(whole_pages("64K"), Ok(65536));
        assert!(whole_pages("0").is_err() && whole_pages("4097").is_err());
        assert_eq!(up_to::<8>("8"), Ok(8));
        assert!(up_to::<8>("9").unwrap_err().contains("1 to 8") && up_to::<8>("0").is_err());
    }
}
