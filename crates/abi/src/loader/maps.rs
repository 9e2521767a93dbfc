//! What this process's memory is made of, so that a pointer of a plugin can be looked at before it is followed.
//!
//! Linux tells of all of it, in `/proc/self/maps`. Other systems like Unix are asked page by page, by a call that reads from there
//! and refuses politely; what is code they do not tell. Elsewhere every pointer but null is believed.

use std::fs;

/// What is known of the address space.
pub(crate) enum Maps {
    /// All mappings, as they were.
    Listed(Vec<Mapping>),
    /// Nothing, but the system can be asked.
    #[cfg(unix)]
    Asked(ask::Pipe),
    /// Nothing.
    Believed,
}

pub(crate) struct Mapping {
    start: usize,
    end: usize,
    readable: bool,
    executable: bool,
}

impl Maps {
    /// As it is now.
    pub(crate) fn now() -> Self {
        let listed = fs::read("/proc/self/maps").ok().and_then(|text| parse(&String::from_utf8_lossy(&text)));
        listed.map_or_else(Self::unlisted, Self::Listed)
    }

    /// Where there is no list.
    #[cfg(unix)]
    fn unlisted() -> Self {
        ask::Pipe::new().map_or(Self::Believed, Self::Asked)
    }

    /// Where there is no list.
    #[cfg(not(unix))]
    fn unlisted() -> Self {
        Self::Believed
    }

    /// Whether all of `len` bytes can be read.
    pub(crate) fn readable(&self, address: usize, len: usize) -> bool {
        let Some(end) = address.checked_add(len) else { return false };
        let mappings = match self {
            Self::Listed(mappings) => mappings,
            #[cfg(unix)]
            Self::Asked(pipe) => return address != 0 && pipe.readable(address, end),
            Self::Believed => return address != 0,
        };
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
        let Self::Listed(mappings) = self else { return self.readable(address, 1) };
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

/// Asking the system.
#[cfg(unix)]
mod ask {
    use std::cell::RefCell;
    use std::io::{self, PipeReader, PipeWriter, Read};
    use std::os::fd::AsRawFd;

    /// No system has smaller pages.
    const PAGE: usize = 4096;

    /// A pipe to write single bytes into: `write` reads them, and fails where they can't be read.
    pub(crate) struct Pipe(RefCell<(PipeReader, PipeWriter)>);

    impl Pipe {
        pub(crate) fn new() -> Option<Self> {
            io::pipe().ok().map(|ends| Self(RefCell::new(ends)))
        }

        /// Whether the bytes from there up to `end` can be read: one of each page.
        pub(crate) fn readable(&self, address: usize, end: usize) -> bool {
            let pages = (address / PAGE + 1..).map(|page| page * PAGE).take_while(|&page| page < end);
            std::iter::once(address).chain(pages).all(|byte| self.byte(byte))
        }

        fn byte(&self, address: usize) -> bool {
            let mut ends = self.0.borrow_mut();
            let (reader, writer) = &mut *ends;
            // SAFETY: write(2) fails with EFAULT where the byte can't be read; the pipe is this process's own, and empty.
            let wrote = unsafe { libc::write(writer.as_raw_fd(), std::ptr::without_provenance(address), 1) };
            wrote == 1 && reader.read_exact(&mut [0]).is_ok()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_followed_across_neighbours_and_not_across_holes() {
        let text = "1000-2000 r--p 0 0 0 a\n2000-3000 r-xp 0 0 0\n4000-5000 rw-p 0 0 0 b c\n5000-6000 ---p 0 0 0\n";
        let maps = parse(text).map_or(Maps::Believed, Maps::Listed);
        assert!(maps.readable(0x1000, 0x2000) && maps.readable(0x1fff, 2) && maps.readable(0x4fff, 1));
        assert!(!maps.readable(0x1000, 0x2001) && !maps.readable(0x2fff, 2) && !maps.readable(0x5000, 1));
        assert!(!maps.readable(usize::MAX - 3, 8) && !maps.readable(0, 1));
        assert!(maps.executable(0x2000) && !maps.executable(0x3000) && !maps.executable(0x1000));
        assert!(parse("nonsense").is_none());
    }

    #[test]
    fn a_system_that_does_not_tell_is_believed() {
        let maps = Maps::Believed;
        assert!(maps.readable(8, 1 << 20) && !maps.readable(0, 1) && maps.executable(8) && !maps.executable(0));
    }

    #[test]
    #[cfg(unix)]
    fn a_system_without_a_list_is_asked() {
        let maps = Maps::unlisted();
        let data = vec![0_u8; 3 * 4096 + 1];
        let address = data.as_ptr().addr();
        assert!(maps.readable(address, data.len()) && maps.executable(address));
        // No user's memory: in the upper half of the address space, in the first page, around the end.
        for (address, len) in [(usize::MAX - (1 << 30), 8), (8, 8), (0, 1), (usize::MAX - 3, 8)] {
            assert!(!maps.readable(address, len), "{address:#x}");
        }
        assert!(!maps.executable(0));
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
