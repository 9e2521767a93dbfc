//! Numbers on the command line, and sizes: a whole number, maybe with a binary unit.

use std::fmt::Display;
use std::ops::RangeInclusive;
use std::str::FromStr;

/// Bytes as `65536`, `64KiB`, `24GiB` or `1T`. `None` if it is no size, or beyond 64 bits.
pub(crate) fn parse(text: &str) -> Option<u64> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = match text[digits.len()..].to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "k" | "kib" => 1 << 10,
        "m" | "mib" => 1 << 20,
        "g" | "gib" => 1 << 30,
        "t" | "tib" => 1u64 << 40,
        _ => return None,
    };
    // parse takes a sign, which no size has.
    if digits.starts_with('+') {
        return None;
    }
    digits.parse::<u64>().ok()?.checked_mul(unit)
}

/// A parser of whole numbers in a range.
pub(crate) fn whole<T: FromStr + Display + PartialOrd + Clone>(
    range: RangeInclusive<T>,
) -> impl Fn(&str) -> Result<T, String> + Clone {
    move |text| match text.parse() {
        Ok(number) if range.contains(&number) => Ok(number),
        _ => Err(format!("expected a whole number from {} to {}", range.start(), range.end())),
    }
}

/// The most memory of a device: more overflows sums of sizes.
const MOST_MEMORY: u64 = 1 << 50;

/// Memory of a device.
pub(crate) fn memory(text: &str) -> Result<u64, String> {
    match parse(text) {
        Some(size) if (1 << 20..=MOST_MEMORY).contains(&size) => Ok(size),
        _ => Err("expected 1MiB to 1024TiB, as 24GiB or 900M".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_binary_units() {
        for (text, size) in
            [("1", 1), ("64k", 64 << 10), ("3M", 3 << 20), ("2MiB", 2 << 20), ("24GiB", 24 << 30), ("1T", 1 << 40)]
        {
            assert_eq!(parse(text), Some(size), "{text}");
        }
        for text in ["", "-1", "+1", "1.5M", "M", "1 M", "18446744073709551616", "18014398509481984K", "5MB"] {
            assert_eq!(parse(text), None, "{text:?}");
        }
        let small = whole::<u16>(1..=20);
        assert_eq!((small("1"), small("20")), (Ok(1), Ok(20)));
        for text in ["0", "21", "-1", "x", "", "1.5", "99999999999999999999"] {
            assert_eq!(
                small(text).as_ref().map_err(String::as_str),
                Err("expected a whole number from 1 to 20"),
                "{text}"
            );
        }
        assert!(memory("1MiB").is_ok() && memory("1023KiB").is_err() && memory("2048TiB").is_err());
    }
}
