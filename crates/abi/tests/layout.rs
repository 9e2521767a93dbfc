//! C and Rust agree on every struct, table and number of the ABI, and the header is clean in C and C++.

use anyaccel_abi::raw::{LAYOUTS, NUMBERS};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

fn include() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../include")
}

fn header() -> String {
    std::fs::read_to_string(include().join("anyaccel/plugin.h")).expect("the header")
}

/// Compiles a program with warnings as errors.
fn compile(compiler: &str, flags: &[&str], source: &Path, to: &Path) {
    let out = Command::new(compiler)
        .args(flags)
        .args(["-Wall", "-Wextra", "-Wpedantic", "-Werror", "-I"])
        .arg(include())
        .arg(source)
        .arg("-o")
        .arg(to)
        .output()
        .unwrap_or_else(|error| panic!("{compiler}: {error}"));
    assert!(out.status.success(), "{compiler} {flags:?}: {}", String::from_utf8_lossy(&out.stderr));
}

/// A program that prints what the compiler makes of each struct and number that Rust has.
fn program() -> String {
    let mut text = String::from("#include <anyaccel/plugin.h>\n#include <stdio.h>\nint main(void) {\n");
    let mut print = |name: &str, value: &str| {
        writeln!(text, "    printf(\"{name} %llu\\n\", (unsigned long long){value});").expect("writes to a string");
    };
    for layout in LAYOUTS {
        print(layout.name, &format!("sizeof({})", layout.name));
        for (field, _) in layout.fields {
            print(&format!("{}.{field}", layout.name), &format!("offsetof({}, {field})", layout.name));
        }
    }
    for (name, _) in NUMBERS {
        print(name, name);
    }
    text.push_str("    return 0;\n}\n");
    text
}

fn expected() -> BTreeMap<String, u64> {
    let mut all = BTreeMap::new();
    for layout in LAYOUTS {
        all.insert(layout.name.to_owned(), layout.size as u64);
        for &(field, offset) in layout.fields {
            all.insert(format!("{}.{field}", layout.name), offset as u64);
        }
    }
    all.extend(NUMBERS.iter().map(|&(name, value)| (name.to_owned(), value)));
    all
}

#[test]
fn c_and_rust_agree_on_every_struct_and_number() {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
    let (source, binary) = (folder.join("layout.c"), folder.join("layout"));
    std::fs::write(&source, program()).expect("a source file");
    compile("cc", &["-std=c11"], &source, &binary);
    let out = Command::new(&binary).output().expect("the program runs");
    let printed = String::from_utf8(out.stdout).expect("text");
    let seen: BTreeMap<String, u64> = printed
        .lines()
        .filter_map(|line| line.rsplit_once(' '))
        .map(|(name, value)| (name.to_owned(), value.parse().expect("a number")))
        .collect();
    let expected = expected();
    for (name, value) in &expected {
        assert_eq!(seen.get(name), Some(value), "{name}: C has the left, Rust the right");
    }
    assert_eq!(seen.len(), expected.len());
}

#[test]
fn the_header_is_clean_in_c_and_in_cpp() {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
    for (compiler, language, extension) in [("cc", "-std=c11", "c"), ("c++", "-std=c++17", "cpp")] {
        let source = folder.join(format!("header.{extension}"));
        // Twice: it is guarded. Alone: it includes what it needs.
        std::fs::write(&source, "#include <anyaccel/plugin.h>\n#include <anyaccel/plugin.h>\n").expect("a source file");
        compile(compiler, &[language, "-c"], &source, &folder.join("header.o"));
    }
}

/// The names that a line of the header declares with that beginning.
fn declared(beginning: &str) -> Vec<String> {
    let name = |rest: &str| rest.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).next().map(str::to_owned);
    header().lines().filter_map(|line| line.strip_prefix(beginning)).filter_map(name).collect()
}

#[test]
fn rust_knows_every_struct_and_number_of_the_header() {
    let opaque = ["anyaccel_driver", "anyaccel_device"];
    let structs = declared("typedef struct ");
    assert!(structs.len() > 40, "{structs:?}");
    for name in structs.iter().filter(|name| !opaque.contains(&name.as_str())) {
        assert!(LAYOUTS.iter().any(|layout| layout.name == name), "Rust does not know {name}");
    }
    let not_numbers = ["PLUGIN_H", "NOEXCEPT", "EXPORT", "HAS"];
    let numbers = declared("#define ANYACCEL_");
    assert!(numbers.len() > 70, "{numbers:?}");
    for name in numbers.iter().filter(|name| !not_numbers.contains(&name.as_str())) {
        assert!(
            NUMBERS.iter().any(|(known, _)| known.strip_prefix("ANYACCEL_") == Some(name)),
            "Rust does not know {name}"
        );
    }
}

#[test]
fn the_header_says_which_functions_are_required() {
    // What Rust requires always is marked so in the header, function by function.
    use anyaccel_abi::raw::{DeviceTable, DriverTable, GatesTable, Table};
    fn check<T: Table>(header: &str) {
        let end = header.find(&format!("}} {};", T::NAME)).expect("the table's end");
        let begin = header[..end].rfind("typedef struct").expect("the table's beginning");
        let table = &header[begin..end];
        for function in T::FUNCTIONS {
            let at = table.find(&format!("(*{})(", function.name)).unwrap_or_else(|| panic!("{}", function.name));
            let comment = &table[table[..at].rfind("/*").expect("a comment")..at];
            let word = if function.required { "/* Required." } else { "/* Optional." };
            let conditional = comment.starts_with("/* Required with");
            assert!(
                comment.starts_with(word) || !function.required && conditional,
                "{}.{}: {comment}",
                T::NAME,
                function.name
            );
        }
    }
    let header = header();
    check::<DriverTable>(&header);
    check::<DeviceTable>(&header);
    check::<GatesTable>(&header);
}
