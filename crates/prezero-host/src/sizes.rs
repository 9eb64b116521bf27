//! A number of bytes as people write it, `64K`, `1.5G`, and a time: `10`, `500ms`.
//!
//! Parsing uses no heap and never panics; an error is the mend, for its caller to put
//! behind the name and the value.

use core::fmt;
use core::time::Duration;

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

/// The time that `text` names: seconds, or a number with a unit, `500ms`, `0.5s`, `2m`, `1h`.
pub fn time(text: &str) -> Option<Duration> {
    let units = [("ms", 1_000_000), ("s", SECOND), ("m", 60 * SECOND), ("h", 3600 * SECOND)];
    let known = units.iter().find_map(|(unit, ns)| Some((text.strip_suffix(unit)?, *ns)));
    let (number, unit) = known.unwrap_or((text, SECOND));
    let (whole, nanos) = decimal(number)?;
    let all = u128::from(whole) * unit + u128::from(nanos) * unit / SECOND;
    Some(Duration::new(u64::try_from(all / SECOND).ok()?, (all % SECOND) as u32))
}

/// In nanoseconds.
const SECOND: u128 = 1_000_000_000;

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
    fn times_are_read_as_people_write_them() {
        for (text, ms) in [
            ("30", 30_000),
            ("30s", 30_000),
            ("0.5", 500),
            ("500ms", 500),
            ("2m", 120_000),
            ("1.5h", 5_400_000),
            ("0", 0),
        ] {
            assert_eq!(time(text), Some(Duration::from_millis(ms)), "{text}");
        }
        assert_eq!(time("0.000000001"), Some(Duration::from_nanos(1)));
        assert_eq!(time(&u64::MAX.to_string()), Some(Duration::from_secs(u64::MAX)));
        for text in ["", "s", "-1", "5 days", "1e999", "NaN", "ms", "18446744073709551615h"] {
            assert_eq!(time(text), None, "{text}");
        }
    }

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
