//! Text for people: sizes, shares, wrapped paragraphs and tables that fit in 80 columns.

/// Columns of a line.
pub(crate) const WIDTH: usize = 80;

/// Bytes with three significant digits and a binary unit: `512 B`, `1.50 KiB`, `11.6 GiB`.
pub(crate) fn bytes(bytes: u64) -> String {
    quantity(bytes as f64)
}

/// Bytes per second.
pub(crate) fn rate(bytes: u64, seconds: f64) -> String {
    if seconds > 0.0 { format!("{}/s", quantity(bytes as f64 / seconds)) } else { "-".to_owned() }
}

fn quantity(bytes: f64) -> String {
    const UNITS: [&str; 7] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    let (mut value, mut unit) = (bytes, 0);
    // 999.5 would round to a fourth digit before the point.
    while value >= 999.5 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    let places = match value {
        _ if unit == 0 => 0,
        value if value < 9.995 => 2,
        value if value < 99.95 => 1,
        _ => 0,
    };
    let digits = format!("{value:.places$}");
    let digits = if digits.contains('.') { digits.trim_end_matches('0').trim_end_matches('.') } else { &digits };
    format!("{digits} {}", UNITS[unit])
}

pub(crate) use anyaccel_snapshot::words::counted;

/// A share in percent, without a fraction.
pub(crate) fn percent(part: f64, whole: f64) -> String {
    if whole > 0.0 { format!("{:.0} %", 100.0 * part / whole) } else { "-".to_owned() }
}

/// A label and a text beside it, which wraps under itself. Ends with a line break.
pub(crate) fn item(indent: usize, label: &str, label_width: usize, text: &str) -> String {
    let column = indent + label_width.max(label.chars().count()) + 2;
    let head = format!("{:indent$}{label:<label_width$}", "");
    let mut lines = wrap(text, WIDTH.saturating_sub(column).max(20)).into_iter();
    let first = lines.next().unwrap_or_default();
    let mut out = format!("{head}  {first}").trim_end().to_owned();
    out.push('\n');
    for line in lines {
        out.push_str(format!("{:column$}{line}", "").trim_end());
        out.push('\n');
    }
    out
}

/// Lines of at most `width` characters, broken at blanks; a longer word gets a line of its own.
pub(crate) fn wrap(text: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= width => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

/// Rows under a header, the columns aligned to the right but for the first. Ends with a line break.
pub(crate) fn table<const N: usize>(header: [&str; N], rows: &[[String; N]]) -> String {
    let width = |column: usize| {
        let cells = rows.iter().map(|row| row[column].chars().count());
        cells.max().unwrap_or(0).max(header[column].chars().count())
    };
    let widths: [usize; N] = std::array::from_fn(width);
    let mut out = String::new();
    for row in std::iter::once(&header.map(str::to_owned)).chain(rows) {
        for (at, (cell, &width)) in row.iter().zip(&widths).enumerate() {
            let cell = if at == 0 { format!("{cell:<width$}") } else { format!("  {cell:>width$}") };
            out.push_str(&cell);
        }
        out.truncate(out.trim_end().len());
        out.push('\n');
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_three_digits() {
        for (size, text) in [
            (0, "0 B"),
            (999, "999 B"),
            (1000, "0.98 KiB"),
            (1024, "1 KiB"),
            (1536, "1.5 KiB"),
            (512 << 10, "512 KiB"),
            (1023 << 10, "1 MiB"),
            ((1 << 30) + (1 << 27), "1.12 GiB"),
            (u64::MAX, "16 EiB"),
        ] {
            assert_eq!(bytes(size), text);
        }
        assert_eq!(rate(3 << 30, 2.0), "1.5 GiB/s");
        assert_eq!(rate(1, 0.0), "-");
    }

    #[test]
    fn text_wraps_under_itself() {
        let text = "word ".repeat(30);
        let item = item(2, "label", 8, &text);
        assert!(item.lines().count() > 1 && item.lines().all(|line| line.len() <= WIDTH), "{item}");
        assert!(item.starts_with("  label     word"));
        assert!(item.lines().skip(1).all(|line| line.starts_with("            word")), "{item}");
    }

    #[test]
    fn a_label_without_text_has_no_trailing_blanks() {
        assert_eq!(item(0, "x", 4, ""), "x\n");
    }

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let rows = [["a".to_owned(), "1".to_owned()], ["bcd".to_owned(), "23456".to_owned()]];
        assert_eq!(table(["x", "n"], &rows), "x        n\na        1\nbcd  23456\n");
    }
}
