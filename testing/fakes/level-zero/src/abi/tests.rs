//! Everything declared here against the vendor's header, by a C compiler.

use super::{CONSTANTS, LAYOUTS};
use crate::tables::TABLES;
use std::fmt::Write as _;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

const HEADER: &str = "/usr/include/level_zero/ze_ddi.h";

/// A program of assertions about the header.
fn assertions() -> String {
    let mut text = String::from(
        "#include <stddef.h>\n#include <level_zero/ze_ddi.h>\n#include <level_zero/zes_ddi.h>\n#include <level_zero/zet_ddi.h>\n\
         #define SAME(what, expected) _Static_assert((unsigned long)(what) == (unsigned long)(expected), #what)\n",
    );
    let mut line = |what: &str, is: usize| writeln!(text, "SAME({what}, {is}ul);").expect("room");
    for &(name, value) in CONSTANTS {
        line(name, value as usize);
    }
    for &(name, size, fields) in LAYOUTS {
        line(&format!("sizeof({name})"), size);
        for &(field, offset) in fields {
            line(&format!("offsetof({name}, {})", field.trim_start_matches("r#")), offset);
        }
    }
    // Of tables without functions only their getter counts.
    for table in TABLES.iter().filter(|table| !table.entries.is_empty()) {
        line(&format!("sizeof({})", table.name), table.entries.len() * 8);
        for (at, name) in table.entries.iter().enumerate().filter(|&(_, &name)| name != "_") {
            let field = name.strip_prefix(table.prefix).expect("a function of that table");
            line(&format!("offsetof({}, pfn{field})", table.name), at * 8);
        }
    }
    text
}

#[test]
fn declarations_are_those_of_the_header() {
    if !Path::new(HEADER).exists() {
        assert!(std::env::var_os("ANYACCEL_REQUIRE_ZE_HEADERS").is_none(), "no {HEADER}: install libze-dev");
        return;
    }
    let mut compiler = Command::new("cc")
        .args(["-x", "c", "-fsyntax-only", "-"])
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("a C compiler");
    compiler.stdin.take().expect("a pipe").write_all(assertions().as_bytes()).expect("a compiler that reads");
    let result = compiler.wait_with_output().expect("its end");
    assert!(result.status.success(), "{}", String::from_utf8_lossy(&result.stderr));
}
