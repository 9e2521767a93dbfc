//! The declarations agree with the published headers, as a C compiler reads them (`libze-dev`, version 1.4 of the interface).

use anyaccel_xpu::sys::{
    CODES, Layout, Symbol, SymbolTable, ZE_CONSTANTS, ZES_CONSTANTS, Ze, Zes, ze_layouts, zes_layouts,
};
use std::env;
use std::fmt::Write;
use std::fs;
use std::path::Path;
use std::process::Command;

const HEADERS: &str = "/usr/include/level_zero";
/// Structs of later versions, which the headers of 1.4 do not know.
const LATER: [&str; 3] =
    ["ze_init_driver_type_desc_t", "ze_kernel_max_group_size_properties_ext_t", "zes_subdevice_exp_properties_t"];

/// Set where headers and loader were installed for this test, so that a skip is a failure.
const REQUIRED: &str = "ANYACCEL_REQUIRE_ZE_HEADERS";

/// The headers without comments; `None` where they are not installed and nobody insists on them.
fn headers() -> Option<String> {
    let text: String = ["ze_api.h", "zes_api.h", "loader/ze_loader.h"]
        .iter()
        .filter_map(|name| fs::read_to_string(Path::new(HEADERS).join(name)).ok())
        .flat_map(|text| {
            text.lines().map(|line| line.split("//").next().unwrap_or(line).to_owned()).collect::<Vec<_>>()
        })
        .fold(String::new(), |all, line| all + &line + "\n");
    if text.is_empty() {
        assert!(env::var_os(REQUIRED).is_none(), "no headers in {HEADERS}: install libze-dev");
        println!("no headers in {HEADERS}");
        return None;
    }
    Some(text)
}

/// The types of a function's parameters, as the headers write them.
fn parameters(text: &str, name: &str) -> Option<Vec<String>> {
    let from = text.find(&format!("\n{name}("))? + name.len() + 2;
    let list = &text[from..from + text[from..].find(");")?];
    let one = |line: &str| {
        let end = line.trim_end().rfind(|c: char| !(c.is_alphanumeric() || c == '_'))?;
        Some(line[..=end].trim().to_owned())
    };
    list.split(',').map(one).collect()
}

fn functions(asserts: &mut String, text: &str, symbols: &[Symbol]) {
    for symbol in symbols {
        let Some(types) = parameters(text, symbol.name) else {
            assert!(symbol.since > (1, 4), "{} is in no header", symbol.name);
            continue;
        };
        assert!(symbol.since <= (1, 4), "{} is older than it is said to be", symbol.name);
        assert_eq!(types.len(), symbol.args.len(), "{}: {types:?}", symbol.name);
        for (kind, size) in types.iter().zip(symbol.args) {
            let _ = writeln!(asserts, "_Static_assert(sizeof({kind}) == {size}, \"{}: {kind}\");", symbol.name);
        }
    }
}

fn structs(asserts: &mut String, layouts: &[Layout]) {
    for layout in layouts.iter().filter(|layout| !LATER.contains(&layout.name)) {
        let Layout { name, size, members } = layout;
        let _ = writeln!(asserts, "_Static_assert(sizeof({name}) == {size}, \"{name}\");");
        for (member, at) in members {
            let _ = writeln!(asserts, "_Static_assert(offsetof({name}, {member}) == {at}, \"{name}.{member}\");");
        }
    }
}

#[test]
fn types_functions_and_numbers_are_those_of_the_headers() {
    let Some(text) = headers() else { return };
    let mut asserts = String::from(
        "#include <stddef.h>\n#include <level_zero/ze_api.h>\n#include <level_zero/zes_api.h>\n\
         #include <level_zero/loader/ze_loader.h>\n",
    );
    functions(&mut asserts, &text, Ze::SYMBOLS);
    functions(&mut asserts, &text, Zes::SYMBOLS);
    structs(&mut asserts, &ze_layouts());
    structs(&mut asserts, &zes_layouts());
    let codes = CODES.iter().map(|&(name, value)| (name, u64::from(value)));
    for (name, value) in codes.chain(ZE_CONSTANTS.iter().copied()).chain(ZES_CONSTANTS.iter().copied()) {
        let _ = writeln!(asserts, "_Static_assert({name} == {value}, \"{name}\");");
    }
    assert!(asserts.lines().count() > 400, "a test that compares nothing proves nothing");
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let source = folder.join("level_zero_headers.c");
    fs::write(&source, asserts).expect("a folder for tests");
    let compiled = Command::new("cc").args(["-std=c11", "-fsyntax-only"]).arg(&source).output();
    let compiled = compiled.expect("a C compiler");
    assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
}

#[test]
fn the_installed_loader_exports_what_is_required() {
    let loader = match anyaccel_xpu::sys::loader() {
        Ok(loader) => loader,
        Err(missing) => {
            assert!(env::var_os(REQUIRED).is_none(), "{missing}: install libze1");
            return println!("{missing}");
        }
    };
    for (symbols, present) in [(Ze::SYMBOLS, loader.ze.present()), (Zes::SYMBOLS, loader.zes.present())] {
        for (symbol, present) in symbols.iter().zip(present) {
            assert!(present || symbol.since > (1, 4), "{} has no {}", loader.path, symbol.name);
        }
    }
}
