//! A number of bytes as people write it: `64K`, `1.5G`.
//!
//! Parsing uses no heap and never panics; an error is the mend, for its caller to put
//! behind the name and the value.

use core::fmt;

/// Bytes, shown in the largest binary unit that divides them: `64K`, `1536M`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Size(pub usize);

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (shift, unit) in [(40, "T"), (30, "G"), (20, "M"), (10, "K")] {
            if self.0 != 0 && self.0.trailing_zeros() >= shift {
                return write!(f, "{}{unit}", self.0 >> shift);
            }
        }
        fmt::Display::fmt(&self.0, f)
    }
}

impl core::str::FromStr for Size {
    type Err = &'static str;

    /// Bytes, or a number with a binary unit: `65536`, `64K`, `1.5G`, `512MiB`.
    fn from_str(text: &str) -> Result<Size, &'static str> {
        size(text).map(Size)
    }
}

/// The bytes that `text` names: see [`Size`].
///
/// # Errors
/// What to write instead.
pub fn size(text: &str) -> Result<usize, &'static str> {
    const MEND: &str = "not a size; give bytes or a number with a unit: 64K, 1.5G, 512MiB";
    let digits = text.find(|c: char| c != '.' && !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let powers = ["", "k", "m", "g", "t"];
    let shift = powers
        .iter()
        .position(|power| {
            let tail = unit.get(power.len()..).unwrap_or("?");
            let (prefixed, plain) = (["", "b", "ib"], ["", "b"]);
            let tails: &[&str] = if power.is_empty() { &plain } else { &prefixed };
            unit.get(..power.len()).is_some_and(|head| head.eq_ignore_ascii_case(power))
                && tails.iter().any(|known| tail.eq_ignore_ascii_case(known))
        })
        .ok_or(MEND)?
        * 10;
    let (whole, nanos) = decimal(number).ok_or(MEND)?;
    let bytes = (u128::from(whole) << shift) + ((u128::from(nanos) << shift) / 1_000_000_000);
    usize::try_from(bytes).map_err(|_| "too large a size; give 8T or less")
}

/// A decimal number as its whole part and its billionths (digits beyond are cut).
pub fn decimal(text: &str) -> Option<(u64, u32)> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, "0"));
    let all_digits = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
    if !all_digits(whole) || !all_digits(fraction) {
        return None;
    }
    let nanos = fraction.bytes().chain(core::iter::repeat(b'0')).take(9);
    Some((whole.parse().ok()?, nanos.fold(0, |sum, digit| sum * 10 + u32::from(digit - b'0'))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_in_every_spelling() {
        for (text, bytes) in [
            ("65536", 65536),
            ("64K", 65536),
            ("64kb", 65536),
            ("64KiB", 65536),
            ("2M", 2 << 20),
            ("1.5G", 3 << 29),
            ("512MiB", 512 << 20),
            ("1t", 1 << 40),
            ("0.0000001K", 0),
            ("7B", 7),
        ] {
            assert_eq!(size(text), Ok(bytes), "{text}");
        }
        for text in ["", "K", "1.G", ".5G", "1..5G", "-1", "+1", "1 G", "1KK", "1iB", "1.5.2M", "é"]
        {
            assert!(size(text).is_err(), "{text}");
        }
        assert!(size("99999999999T").is_err());
    }
}
