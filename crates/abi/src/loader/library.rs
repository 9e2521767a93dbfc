//! Opening a library: what it is, by its first bytes, and then by the system's loader.

use super::error::Refusal;
use crate::raw;
use std::fs::{self, File};
use std::io::Read;
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
    let mut head = Vec::new();
    File::open(path).and_then(|file| file.take(20).read_to_end(&mut head)).map_err(unreadable)?;
    if cfg!(any(target_os = "linux", target_os = "android", target_os = "freebsd")) { elf(&head) } else { Ok(()) }
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
