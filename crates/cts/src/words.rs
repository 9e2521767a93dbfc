//! Values in words, for people who know the header and not Rust.

use anyaccel_hal::{Absence, Segment};
use std::fmt::Debug;
use std::iter::Peekable;
use std::str::Chars;

/// A value without what only Rust means: `Some(Probe { visible: 2, absence: None })` becomes `visible 2, absence none`.
pub(crate) fn plain(value: &impl Debug) -> String {
    let text = format!("{value:?}");
    Reader::read(&text).out
}

/// Two values in words. Of structs only the fields that differ.
pub(crate) fn differing<T: Debug>(one: &T, other: &T) -> (String, String) {
    let (one, other) = (format!("{one:?}"), format!("{other:?}"));
    let (one, other) = (Reader::read(&one), Reader::read(&other));
    let (left, right) = (one.fields(), other.fields());
    if left.len() < 2 || left.len() != right.len() {
        return (one.out, other.out);
    }
    let differing = left.into_iter().zip(right).filter(|(left, right)| left != right);
    let (left, right): (Vec<&str>, Vec<&str>) = differing.unzip();
    (left.join(", "), right.join(", "))
}

/// Where a segment lies.
pub(crate) fn segment(Segment { addr, len, .. }: &Segment) -> String {
    format!("{len} bytes at {addr:#x}")
}

/// Why there is no device.
pub(crate) fn absence(absence: &Absence) -> String {
    match absence {
        Absence::Missing { subject, found, .. } => format!("{subject}: {found}"),
        Absence::BadVariable { name, value, expected } => {
            format!("{name}='{value}' can't be used: expected {expected}")
        }
        Absence::Masked { name, value } => format!("all devices are hidden by {name}='{value}'"),
    }
}

/// Reads what `Debug` wrote.
struct Reader<'a> {
    rest: Peekable<Chars<'a>>,
    out: String,
    /// In how many structs, tuples and lists it is.
    depth: usize,
    /// Where the fields of the outermost struct or tuple end.
    ends: Vec<usize>,
}

impl<'a> Reader<'a> {
    fn read(text: &'a str) -> Self {
        let mut reader = Self { rest: text.chars().peekable(), out: String::new(), depth: 0, ends: Vec::new() };
        // What is not understood stays as it is.
        while reader.value() {}
        reader
    }

    /// The fields of a struct or tuple, each with its name; one if it is something else.
    fn fields(&self) -> Vec<&str> {
        let begins = std::iter::once(0).chain(self.ends.iter().map(|end| end + 2));
        let ends = self.ends.iter().copied().chain([self.out.len()]);
        begins.zip(ends).map(|(begin, end)| self.out.get(begin..end).unwrap_or_default()).collect()
    }

    /// Takes what comes next; false at the end.
    fn value(&mut self) -> bool {
        let Some(&next) = self.rest.peek() else { return false };
        match next {
            '"' | '\'' => self.quoted(next),
            '{' | '(' | '[' => self.group(next),
            _ if next.is_alphanumeric() || next == '_' => self.word(),
            _ => self.out.extend(self.rest.next()),
        }
        true
    }

    fn quoted(&mut self, quote: char) {
        self.out.extend(self.rest.next());
        while let Some(character) = self.rest.next() {
            self.out.push(character);
            if character == '\\' {
                self.out.extend(self.rest.next());
            } else if character == quote {
                break;
            }
        }
    }

    /// A name, a number, or a name with what belongs to it.
    fn word(&mut self) {
        let mut word = String::new();
        while let Some(character) = self.rest.next_if(|next| next.is_alphanumeric() || *next == '_' || *next == '.') {
            word.push(character);
        }
        let follows = self.rest.clone().take(2).collect::<String>();
        match (word.as_str(), follows.as_str()) {
            ("None", _) => self.out.push_str("none"),
            ("Some" | "Ok" | "Err", call) if call.starts_with('(') => self.inside(')'),
            (_, call) if call.starts_with('(') => {
                self.out.push_str(&word);
                self.out.push(' ');
                self.inside(')');
            }
            (_, " {") => {
                self.rest.next();
                self.group('{');
            }
            (_, ": ") => {
                self.rest.next();
                self.out.push_str(&word);
            }
            _ => self.out.push_str(&word),
        }
    }

    /// The one value between parentheses that are left out.
    fn inside(&mut self, close: char) {
        self.rest.next();
        while self.rest.peek().is_some_and(|&next| next != close) {
            self.value();
        }
        self.rest.next();
    }

    /// A struct, a tuple or a list: the outermost one needs no brackets, unless it is a list.
    fn group(&mut self, open: char) {
        let close = match open {
            '{' => '}',
            '(' => ')',
            _ => ']',
        };
        let (left, right) = match open {
            '[' => ("[", "]"),
            _ if self.depth == 0 => ("", ""),
            _ => ("(", ")"),
        };
        self.rest.next();
        self.out.push_str(left);
        self.depth += 1;
        while self.rest.next_if_eq(&' ').is_some() {}
        while let Some(&next) = self.rest.peek().filter(|&&next| next != close) {
            if next == ',' && self.depth == 1 && open != '[' {
                self.ends.push(self.out.len());
            }
            self.value();
        }
        self.depth -= 1;
        self.rest.next();
        self.out.truncate(self.out.trim_end_matches(' ').len());
        self.out.push_str(right);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use anyaccel_hal::{Mark, Mem, Probe, Waited};

    #[test]
    fn of_two_structs_the_fields_that_differ_are_told() {
        let probe = |visible, value: &str| Probe {
            visible,
            ..Probe::absent(Absence::Masked { name: "X", value: value.into() })
        };
        let (one, other) = differing(&probe(1, "a, b"), &probe(2, "a, b"));
        assert_eq!((one.as_str(), other.as_str()), ("visible 1", "visible 2"));
        let (one, _) = differing(&probe(1, "a"), &probe(1, "b"));
        assert_eq!(one, r#"absence (name "X", value "a")"#);
        let lists = differing(&vec![1, 2], &vec![1, 3]);
        assert_eq!(lists, ("[1, 2]".to_owned(), "[1, 3]".to_owned()));
    }

    #[test]
    fn values_lose_what_only_rust_means() {
        let probe = Probe::absent(Absence::Masked { name: "X", value: "a (b: \"c\")".into() });
        assert_eq!(
            plain(&Some(probe)),
            r#"visible 0, present none, absence (name "X", value "a (b: \"c\")"), started false"#
        );
        assert_eq!(plain(&Mem(7)), "Mem 7");
        assert_eq!(plain(&vec![Mark::At(1), Mark::Captured(2)]), "[At 1, Captured 2]");
        assert_eq!(plain(&Ok::<_, ()>(Waited::TimedOut)), "TimedOut");
        assert_eq!(plain(&None::<u32>), "none");
        assert_eq!(plain(&(1.5, -2, "x")), r#"1.5, -2, "x""#);
        let segments = [Segment { mem: Mem(1), addr: 2, len: 3 }];
        assert_eq!(plain(&segments), "[(mem Mem 1, addr 2, len 3)]");
        assert_eq!(segment(&segments[0]), "3 bytes at 0x2");
    }
}
