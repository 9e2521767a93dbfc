//! Numbers and strings of the text protocol.

use super::objects::Value;

/// INT, LONG and FLOAT. Whole numbers beyond 64 bits are nothing that a snapshot has.
pub(super) fn number(op: u8, line: &[u8]) -> Option<Value> {
    let text = std::str::from_utf8(line).ok()?.trim();
    if op == b'F' {
        return text.parse().ok().map(Value::Float);
    }
    match (op, text) {
        (b'I', "00") => return Some(Value::Bool(false)),
        (b'I', "01") => return Some(Value::Bool(true)),
        _ => {}
    }
    let digits = if op == b'L' { text.strip_suffix('L').unwrap_or(text) } else { text };
    let magnitude = digits.strip_prefix('-').unwrap_or(digits);
    if magnitude.is_empty() || !magnitude.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    Some(digits.parse().map_or(Value::Opaque, Value::Int))
}

fn hex(digits: &[u8]) -> Option<u32> {
    u32::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
}

/// UNICODE: Latin-1 with `\uXXXX` and `\UXXXXXXXX` for the rest. Gives UTF-8; half of a surrogate pair is replaced.
pub(super) fn unicode(line: &[u8]) -> Option<Vec<u8>> {
    let mut out = String::with_capacity(line.len());
    let mut rest = line;
    while let Some((&byte, after)) = rest.split_first() {
        let digits = match (byte, after.first()) {
            (b'\\', Some(b'u')) => 4,
            (b'\\', Some(b'U')) => 8,
            _ => {
                out.push(char::from(byte));
                rest = after;
                continue;
            }
        };
        let code = hex(after.get(1..=digits)?)?;
        out.push(char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER));
        rest = &after[digits + 1..];
    }
    Some(out.into_bytes())
}

/// STRING: in quotes, with the escapes of Python.
pub(super) fn quoted(line: &[u8]) -> Option<Vec<u8>> {
    let line = line.trim_ascii();
    let (&quote, rest) = line.split_first()?;
    let (&last, mut rest) = rest.split_last()?;
    if quote != last || !matches!(quote, b'\'' | b'"') {
        return None;
    }
    let mut out = Vec::with_capacity(rest.len());
    while let Some((&byte, after)) = rest.split_first() {
        if byte != b'\\' {
            out.push(byte);
            rest = after;
            continue;
        }
        let (&escape, after) = after.split_first()?;
        rest = after;
        match escape {
            b'n' => out.push(b'\n'),
            b't' => out.push(b'\t'),
            b'r' => out.push(b'\r'),
            b'x' => {
                out.push(hex(after.get(..2)?)? as u8);
                rest = &after[2..];
            }
            b'\\' | b'\'' | b'"' => out.push(escape),
            other => out.extend([b'\\', other]),
        }
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers() {
        assert!(matches!(number(b'I', b"01"), Some(Value::Bool(true))));
        assert!(matches!(number(b'I', b"-5"), Some(Value::Int(-5))));
        assert!(matches!(number(b'L', b"35184372088832L"), Some(Value::Int(35_184_372_088_832))));
        assert!(matches!(number(b'L', b"99999999999999999999999L"), Some(Value::Opaque)));
        assert!(matches!(number(b'F', b"0.8"), Some(Value::Float(_))));
        assert!(number(b'I', b"x").is_none() && number(b'L', b"-").is_none());
    }

    #[test]
    fn strings() {
        assert_eq!(unicode(b"a\\u00e9\\U0001f600\xe9").unwrap(), "aé😀é".as_bytes());
        assert_eq!(unicode(b"\\ud800").unwrap(), "\u{fffd}".as_bytes());
        assert!(unicode(b"\\u12").is_none());
        assert_eq!(quoted(b"'a\\n\\x41\\\\\\q'").unwrap(), b"a\nA\\\\q");
        assert!(quoted(b"'a").is_none() && quoted(b"'\\'").is_none() && quoted(b"").is_none());
    }
}
