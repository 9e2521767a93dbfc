//! Programs in C, compiled and run on a fake.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// A folder of a test's own.
pub(crate) fn folder(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("level-zero-programs").join(name);
    std::fs::create_dir_all(&folder).expect("a folder");
    folder
}

/// Whether there is a header to compile with; it must be where that is asked for.
pub(crate) fn present() -> bool {
    let there = Path::new("/usr/include/level_zero/ze_api.h").exists();
    assert!(there || std::env::var_os("ANYACCEL_REQUIRE_ZE_HEADERS").is_none(), "install libze-dev");
    there
}

/// A module with two kernels, `increment(words, count)` and `spin(millis)`.
pub(crate) fn module() -> Vec<u8> {
    const KERNEL: u32 = 6;
    let text = |text: &str| -> Vec<u32> {
        let mut bytes = text.as_bytes().to_vec();
        bytes.resize(bytes.len() / 4 * 4 + 4, 0);
        bytes.as_chunks::<4>().0.iter().map(|&word| u32::from_le_bytes(word)).collect()
    };
    let mut words = vec![0x0723_0203, 0x0001_0000, 0, 16, 0];
    let mut add = |code: u32, operands: &[u32]| {
        words.push((operands.len() as u32 + 1) << 16 | code);
        words.extend_from_slice(operands);
    };
    // Capabilities Addresses, Linkage, Kernel; addresses of 64 bits, and the memory model of OpenCL.
    for capability in [4, 5, 6] {
        add(17, &[capability]);
    }
    add(14, &[2, 2]);
    add(15, &[&[KERNEL, 1][..], &text("increment")].concat());
    add(15, &[&[KERNEL, 9][..], &text("spin")].concat());
    // Types: nothing, u32, a pointer to it in memory, and those of the functions.
    add(19, &[2]);
    add(21, &[3, 32, 0]);
    add(32, &[4, 5, 3]);
    add(33, &[5, 2, 4, 3]);
    add(33, &[10, 2, 3]);
    add(54, &[2, 1, 0, 5]);
    add(55, &[4, 6]);
    add(55, &[3, 7]);
    add(248, &[8]);
    add(253, &[]);
    add(56, &[]);
    add(54, &[2, 9, 0, 10]);
    add(55, &[3, 11]);
    add(248, &[12]);
    add(253, &[]);
    add(56, &[]);
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

/// Compiles a program, linked with a loader; the command that runs it with the path of the module.
pub(crate) fn program(folder: &Path, source: &str, loader: &str) -> Command {
    let (program, code) = (folder.join("program"), folder.join("module.spv"));
    std::fs::write(&code, module()).expect("a module");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/c").join(source);
    let mut compiler = Command::new("cc");
    compiler.args(["-std=gnu11", "-Wall", "-Werror", "-o"]).arg(&program).arg(source).arg(loader);
    assert!(compiler.status().is_ok_and(|status| status.success()), "a C compiler");
    let mut command = Command::new(program);
    command.arg(code).env("LD_LIBRARY_PATH", folder);
    for name in ["ZE_AFFINITY_MASK", "ZE_FLAT_DEVICE_HIERARCHY", "ZES_ENABLE_SYSMAN", "ZE_ENABLE_PCI_ID_DEVICE_ORDER"] {
        command.env_remove(name);
    }
    command
}

/// What a program that ended well said.
pub(crate) fn said(output: &Output) -> String {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success(), "{} {}", text(&output.stdout), text(&output.stderr));
    text(&output.stdout)
}
