//! Opening a library: what it is, by its first bytes, and then by the system's loader.

use super::error::Refusal;
use crate::raw;
use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;

/// Opens the library for good and finds its entry.
pub(crate) fn entry(path: &Path) -> Result<raw::Entry, Refusal> {
    if !path.is_absolute() {
        return Err(Refusal::Relative);
    }
    recognise(path)?;
    let library = open(path)?;
    // SAFETY: a library that exports a symbol of this name promises that it is this function.
    let entry = unsafe { library.get::<raw::Entry>(raw::ENTRY) }.map(|symbol| *symbol);
    // Never unloaded: threads, static text and tables of the plugin may live as long as the process. Not even one that
    // is refused, since its constructors have run and may have left anything behind.
    std::mem::forget(library);
    entry.map_err(|_| Refusal::NoEntry)
}

fn open(path: &Path) -> Result<libloading::Library, Refusal> {
    #[cfg(unix)]
    // SAFETY: the user named this library as a plugin, whose constructors start nothing (H22). All symbols are bound now,
    // so that one that is missing is an answer here and no death later.
    let library = unsafe {
        use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};
        Library::open(Some(path), RTLD_NOW | RTLD_LOCAL).map(libloading::Library::from)
    };
    #[cfg(not(unix))]
    // SAFETY: the user named this library as a plugin, whose constructors start nothing (H22).
    let library = unsafe { libloading::Library::new(path) };
    library.map_err(|error| {
        // What the system says is the error's source, and repeats the path.
        let said = std::error::Error::source(&error).map(ToString::to_string);
        let text = said.unwrap_or_else(|| error.to_string());
        let text = text.replace(&format!("{}: ", path.display()), "");
        Refusal::DoesNotLoad { found: text.lines().collect::<Vec<_>>().join(" ") }
    })
}

/// Looks at the file's first bytes. The system's own words for a library of another machine are often misleading.
fn recognise(path: &Path) -> Result<(), Refusal> {
    let unreadable = |error: std::io::Error| Refusal::Unreadable { found: error.to_string() };
    let metadata = fs::metadata(path).map_err(unreadable)?;
    if !metadata.is_file() {
        let found = if metadata.is_dir() { "a folder" } else { "no ordinary file" };
        return Err(Refusal::NoLibrary { found: found.into() });
    }
    let mut file = File::open(path).map_err(unreadable)?;
    let head = read(&mut file, 0, 64).map_err(unreadable)?;
    if cfg!(any(target_os = "linux", target_os = "android", target_os = "freebsd")) {
        elf(&head)?;
        let table = Extent::of_segments(&head);
        let table = read(&mut file, table.offset, table.len).map_err(unreadable)?;
        complete(&head, &table, metadata.len())?;
    }
    Ok(())
}

/// That many bytes from there, or as many as there are.
fn read(file: &mut File, from: u64, len: u64) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    file.seek(SeekFrom::Start(from))?;
    file.take(len).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// A part of a file.
struct Extent {
    offset: u64,
    len: u64,
}

impl Extent {
    /// The table of segments, by the header of a 64-bit ELF file; nothing if the header is another one.
    fn of_segments(head: &[u8]) -> Self {
        let len = u64::from(half(head, 0x36)) * u64::from(half(head, 0x38));
        Self { offset: word(head, 0x20), len }
    }

    /// The table of sections, likewise.
    fn of_sections(head: &[u8]) -> Self {
        let len = u64::from(half(head, 0x3a)) * u64::from(half(head, 0x3c));
        Self { offset: word(head, 0x28), len }
    }

    /// What a segment has in the file, by its line of the table.
    fn of_segment(line: &[u8]) -> Self {
        Self { offset: word(line, 0x08), len: word(line, 0x20) }
    }

    fn end(&self) -> u64 {
        if self.len == 0 { 0 } else { self.offset.saturating_add(self.len) }
    }
}

/// Numbers of a 64-bit ELF file of this machine's byte order; 0 where there are none.
fn half(bytes: &[u8], at: usize) -> u16 {
    bytes.get(at..).and_then(|rest| rest.first_chunk()).map_or(0, |&chunk| u16::from_ne_bytes(chunk))
}

fn word(bytes: &[u8], at: usize) -> u64 {
    bytes.get(at..).and_then(|rest| rest.first_chunk()).map_or(0, |&chunk| u64::from_ne_bytes(chunk))
}

/// Whether all that the header and its table of segments speak of is in the file. The system's loader maps what is not, and the
/// process dies of a SIGBUS at the first look at it.
fn complete(head: &[u8], segments: &[u8], size: u64) -> Result<(), Refusal> {
    if usize::BITS != 64 {
        return Ok(());
    }
    let lines = segments.chunks(usize::from(half(head, 0x36)).max(1));
    let segments = lines.map(|line| Extent::of_segment(line).end()).max().unwrap_or(0);
    let headers = Extent::of_segments(head).end();
    let sections = Extent::of_sections(head).end();
    for (part, needed) in [("header", 64), ("program header", headers), ("segments", segments), ("sections", sections)]
    {
        if needed > size {
            return Err(Refusal::CutOff { size, part, needed });
        }
    }
    Ok(())
}

/// Numbers of machines in ELF files, with their names.
const MACHINES: &[(u16, &str)] = &[
    (3, "x86"),
    (8, "mips"),
    (20, "powerpc"),
    (21, "powerpc64"),
    (22, "s390x"),
    (40, "arm"),
    (62, "x86_64"),
    (183, "aarch64"),
    (243, "riscv64"),
    (258, "loongarch64"),
];

fn elf(head: &[u8]) -> Result<(), Refusal> {
    let wanted = std::env::consts::ARCH;
    if head.is_empty() {
        return Err(Refusal::NoLibrary { found: "the file is empty".into() });
    }
    if !head.starts_with(b"\x7fELF") {
        let shown = String::from_utf8_lossy(&head[..head.len().min(8)]).escape_debug().to_string();
        return Err(Refusal::NoLibrary { found: format!("the file begins with '{shown}'") });
    }
    let Some(&[_, _, _, _, class, order, .., kind, kind_end, machine, machine_end]) = head.first_chunk::<20>() else {
        return Err(Refusal::NoLibrary { found: format!("an ELF file of {} bytes", head.len()) });
    };
    let number = |bytes| if order == 2 { u16::from_be_bytes(bytes) } else { u16::from_le_bytes(bytes) };
    let machine = number([machine, machine_end]);
    let bits = match class {
        1 => 32,
        2 => 64,
        _ => return Err(Refusal::NoLibrary { found: format!("an ELF file of class {class}") }),
    };
    let name = MACHINES.iter().find(|&&(known, _)| known == machine).map(|&(_, name)| name);
    let little = order == 1;
    if name != Some(wanted) || bits != usize::BITS || little != cfg!(target_endian = "little") {
        let found = name.map_or_else(|| format!("machine {machine}"), str::to_owned);
        let order = if little { "" } else { ", big-endian" };
        return Err(Refusal::OtherMachine {
            found: format!("{found}, {bits} bits{order}"),
            wanted: format!("{wanted}, {} bits", usize::BITS),
        });
    }
    match number([kind, kind_end]) {
        3 => Ok(()),
        1 => Err(Refusal::NoLibrary { found: "an object file; link it with -shared".into() }),
        2 => Err(Refusal::NoLibrary { found: "a program".into() }),
        4 => Err(Refusal::NoLibrary { found: "a core dump".into() }),
        other => Err(Refusal::NoLibrary { found: format!("an ELF file of type {other}") }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(class: u8, order: u8, kind: u16, machine: u16) -> Vec<u8> {
        let mut head = vec![0x7f, b'E', b'L', b'F', class, order, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        let bytes = |value: u16| if order == 2 { value.to_be_bytes() } else { value.to_le_bytes() };
        head.extend(bytes(kind));
        head.extend(bytes(machine));
        head
    }

    fn machine() -> u16 {
        MACHINES.iter().find(|(_, name)| *name == std::env::consts::ARCH).map_or(0, |&(number, _)| number)
    }

    #[test]
    #[cfg(target_pointer_width = "64")]
    fn a_file_has_all_that_it_speaks_of() {
        // A header with one segment of 100 bytes from byte 200, and two sections from byte 400, each told of in 64 bytes.
        let mut head = vec![0; 64];
        head[0x20..0x28].copy_from_slice(&64_u64.to_ne_bytes());
        head[0x28..0x30].copy_from_slice(&400_u64.to_ne_bytes());
        for (at, value) in [(0x36, 56_u16), (0x38, 1), (0x3a, 64), (0x3c, 2)] {
            head[at..at + 2].copy_from_slice(&value.to_ne_bytes());
        }
        let mut line = vec![0; 56];
        line[0x08..0x10].copy_from_slice(&200_u64.to_ne_bytes());
        line[0x20..0x28].copy_from_slice(&100_u64.to_ne_bytes());
        assert_eq!(complete(&head, &line, 528), Ok(()));
        for (size, part, needed) in
            [(527, "sections", 528), (299, "segments", 300), (119, "program header", 120), (63, "header", 64)]
        {
            assert_eq!(complete(&head, &line, size), Err(Refusal::CutOff { size, part, needed }));
        }
        line[0x20..0x28].copy_from_slice(&u64::MAX.to_ne_bytes());
        assert!(complete(&head, &line, 528).is_err());
    }

    #[test]
    #[cfg(all(target_pointer_width = "64", target_endian = "little"))]
    fn files_are_told_apart_by_their_first_bytes() {
        assert_eq!(elf(&header(2, 1, 3, machine())), Ok(()));
        let said = |head: &[u8]| elf(head).expect_err("refused").to_string();
        assert!(said(&header(2, 1, 3, 0xf00)).contains("a library for machine 3840, 64 bits"));
        assert!(said(&header(1, 1, 3, 3)).contains("a library for x86, 32 bits"));
        assert!(said(&header(2, 2, 3, 22)).contains("a library for s390x, 64 bits, big-endian"));
        assert!(said(&header(2, 1, 1, machine())).contains("object file"));
        assert!(said(&header(2, 1, 2, machine())).contains("a program"));
        assert!(said(&header(9, 1, 3, machine())).contains("class 9"));
        assert!(said(b"").contains("empty"));
        assert!(said(b"\x7fELF").contains("4 bytes"));
        assert_eq!(said(b"#!/bin/sh\n"), "no shared library: the file begins with '#!/bin/s'");
    }
}
