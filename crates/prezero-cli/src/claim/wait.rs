//! How long a client would wait, as people write it: `30`, `30s`, `0.5s`, `500ms`, `2m`.

use std::str::FromStr;
use std::time::Duration;

/// See the module.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Wait(pub Duration);

impl FromStr for Wait {
    type Err = String;

    fn from_str(text: &str) -> Result<Wait, String> {
        let units = [("ms", 1e-3), ("s", 1.0), ("m", 60.0), ("h", 3600.0)];
        let known = units.iter().find_map(|(unit, s)| Some((text.strip_suffix(unit)?, *s)));
        let (number, unit) = known.unwrap_or((text, 1.0));
        let seconds = number.parse::<f64>().ok().map(|number| number * unit);
        seconds
            .and_then(|seconds| Duration::try_from_secs_f64(seconds).ok())
            .map(Wait)
            .ok_or_else(|| "give seconds, or a time with its unit: 30, 500ms, 2m".to_owned())
    }
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
            ("1h", 3_600_000),
            ("0", 0),
        ] {
            assert_eq!(text.parse(), Ok(Wait(Duration::from_millis(ms))), "{text}");
        }
        for text in ["", "s", "-1", "5 days", "1e999", "NaN", "ms"] {
            assert!(text.parse::<Wait>().unwrap_err().contains("30, 500ms, 2m"), "{text}");
        }
    }
}
