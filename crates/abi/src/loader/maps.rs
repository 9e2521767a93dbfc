//! What this process's memory is made of, so that a pointer of a plugin can be looked at before it is followed.
//!
//! Only where the system tells (Linux, in `/proc/self/maps`); elsewhere every pointer but null is believed.

use std::fs;

/// A snapshot of the address space.
pub(crate) struct Maps(Option<Vec<Mapping>>);

struct Mapping {
    start: usize,
    end: usize,
    readable: bool,
    executable: bool,
}

impl Maps {
    /// As it is now.
    pub(crate) fn now() -> Self {
        Self(fs::read("/proc/self/maps").ok().and_then(|text| parse(&String::from_utf8_lossy(&text))))
    }

    /// Whether all of `len` bytes can be read.
    pub(crate) fn readable(&self, address: usize, len: usize) -> bool {
        let Some(mappings) = &self.0 else { return address != 0 };
        let Some(end) = address.checked_add(len) else { return false };
        let mut at = address;
        for mapping in mappings.iter().filter(|mapping| mapping.readable) {
            if mapping.start <= at && at < mapping.end {
                at = mapping.end;
            }
        }
        at >= end && address != 0
    }

    /// Whether there is code.
    pub(crate) fn executable(&self, address: usize) -> bool {
        let Some(mappings) = &self.0 else { return address != 0 };
        mappings.iter().any(|mapping| mapping.executable && mapping.start <= address && address < mapping.end)
    }
}

/// The mappings, lowest first, as the kernel lists them.
fn parse(text: &str) -> Option<Vec<Mapping>> {
    let mapping = |line: &str| {
        let (range, rest) = line.split_once(' ')?;
        let (start, end) = range.split_once('-')?;
        let start = usize::from_str_radix(start, 16).ok()?;
        let end = usize::from_str_radix(end, 16).ok()?;
        let flags = rest.as_bytes();
        Some(Mapping { start, end, readable: flags.first() == Some(&b'r'), executable: flags.get(2) == Some(&b'x') })
    };
    text.lines().map(mapping).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_followed_across_neighbours_and_not_across_holes() {
        let text = "1000-2000 r--p 0 0 0 a\n2000-3000 r-xp 0 0 0\n4000-5000 rw-p 0 0 0 b c\n5000-6000 ---p 0 0 0\n";
        let maps = Maps(parse(text));
        assert!(maps.readable(0x1000, 0x2000) && maps.readable(0x1fff, 2) && maps.readable(0x4fff, 1));
        assert!(!maps.readable(0x1000, 0x2001) && !maps.readable(0x2fff, 2) && !maps.readable(0x5000, 1));
        assert!(!maps.readable(usize::MAX - 3, 8) && !maps.readable(0, 1));
        assert!(maps.executable(0x2000) && !maps.executable(0x3000) && !maps.executable(0x1000));
        assert!(parse("nonsense").is_none());
    }

    #[test]
    fn a_system_that_does_not_tell_is_believed() {
        let maps = Maps(None);
        assert!(maps.readable(8, 1 << 20) && !maps.readable(0, 1) && maps.executable(8) && !maps.executable(0));
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn this_process_has_data_and_code() {
        let maps = Maps::now();
        let data = Box::new([0_u8; 64]);
        let code: fn() = this_process_has_data_and_code;
        assert!(maps.readable(data.as_ptr().addr(), 64) && !maps.executable(data.as_ptr().addr()));
        assert!(maps.executable(code as usize));
    }
}
