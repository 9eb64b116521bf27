//! How the values of knobs are written: orders, loads, times, paths. Sizes are of [`prezero_host`].
//!
//! Parsing uses no heap and never panics; an error is the mend, for its caller to put
//! behind the name and the value.

use core::fmt;
use core::time::Duration;

use prezero_host::sizes::decimal;

use crate::units::Order;

/// The longest time: thirty years, "not while I live".
const MAX_TIME: Duration = Duration::from_secs(1_000_000_000);

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
