//! How long a client would wait, as people write it: `30`, `30s`, `0.5s`, `500ms`, `2m`.

use std::str::FromStr;
use std::time::Duration;

use prezero_host::sizes::time;

/// See the module.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Wait(pub Duration);

impl FromStr for Wait {
    type Err = String;

    fn from_str(text: &str) -> Result<Wait, String> {
        let mend = || "give seconds, or a time with its unit: 30, 500ms, 2m".to_owned();
        time(text).map(Wait).ok_or_else(mend)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_that_cannot_be_read_comes_with_the_mend() {
        assert_eq!("500ms".parse(), Ok(Wait(Duration::from_millis(500))));
        assert!("5 days".parse::<Wait>().unwrap_err().contains("30, 500ms, 2m"));
    }
}
