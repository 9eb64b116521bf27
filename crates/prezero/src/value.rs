//! How the values of knobs are written: sizes, orders, loads, times, paths.
//!
//! Parsing uses no heap and never panics; an error is the mend, for its caller to put
//! behind the name and the value.

use core::fmt;
use core::time::Duration;

use crate::page::Order;

/// The longest time: thirty years, "not while I live".
const MAX_TIME: Duration = Duration::from_secs(1_000_000_000);

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

pub(crate) fn size(text: &str) -> Result<usize, &'static str> {
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
fn decimal(text: &str) -> Option<(u64, u32)> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, "0"));
    let all_digits = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
    if !all_digits(whole) || !all_digits(fraction) {
        return None;
    }
    let nanos = fraction.bytes().chain(core::iter::repeat(b'0')).take(9);
    Some((whole.parse().ok()?, nanos.fold(0, |sum, digit| sum * 10 + u32::from(digit - b'0'))))
}

pub(crate) fn order(text: &str) -> Result<Order, &'static str> {
    let number = text.parse().ok().filter(|_| !text.starts_with('+'));
    number.and_then(Order::new).ok_or("not an order; give 0 (4K) to 18 (1G)")
}

pub(crate) fn load(text: &str) -> Result<f32, &'static str> {
    let number =
        text.parse().ok().filter(|load: &f32| load.is_finite() && !load.is_sign_negative());
    number.ok_or("not a load average; give a number from 0 up, or off")
}

pub(crate) fn seconds(text: &str) -> Result<Duration, &'static str> {
    let (whole, nanos) = decimal(text).ok_or("not a time; give seconds: 10, 0.5")?;
    Some(Duration::new(whole, nanos))
        .filter(|&decay| decay <= MAX_TIME)
        .ok_or("too long a time; give 1000000000 seconds or less")
}

/// A string of at most `N` bytes that lies where it is, not on a heap.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Text<const N: usize> {
    len: usize,
    bytes: [u8; N],
}

impl<const N: usize> Text<N> {
    /// `text`, if it fits.
    pub fn new(text: &str) -> Option<Self> {
        (text.len() <= N).then(|| Text::head(text))
    }

    /// As many whole characters of `text` as fit.
    pub fn head(text: &str) -> Self {
        let len = (0..=N.min(text.len())).rev().find(|&len| text.is_char_boundary(len));
        let mut head = Text { len: len.unwrap_or(0), bytes: [0; N] };
        head.bytes[..head.len].copy_from_slice(&text.as_bytes()[..head.len]);
        head
    }

    /// Nothing yet.
    pub fn empty() -> Self {
        Text { len: 0, bytes: [0; N] }
    }

    /// The string.
    pub fn as_str(&self) -> &str {
        core::str::from_utf8(&self.bytes[..self.len]).unwrap_or("")
    }
}

impl<const N: usize> fmt::Write for Text<N> {
    /// As many whole characters as there is room for.
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let room = N - self.len;
        let end = (0..=room.min(text.len())).rev().find(|&end| text.is_char_boundary(end));
        let more = &text[..end.unwrap_or(0)];
        self.bytes[self.len..self.len + more.len()].copy_from_slice(more.as_bytes());
        self.len += more.len();
        if more.len() == text.len() { Ok(()) } else { Err(fmt::Error) }
    }
}

impl<const N: usize> fmt::Display for Text<N> {
    /// On one line: control characters are escaped.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_str().escape_debug().fmt(f)
    }
}

impl<const N: usize> fmt::Debug for Text<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_str(), f)
    }
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
