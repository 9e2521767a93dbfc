//! From OpenCL C to the SPIR-V of this tree.

use crate::tools;
use anyaccel_kernels::device::{opencl, spirv};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The tools by the names of Debian 12's packages. The bytes depend on the versions of the first two.
const CLANG: &str = "clang-15";
const TRANSLATOR: &str = "llvm-spirv-15";
const VALIDATOR: &str = "spirv-val";

/// What the modules have to be valid for: the first OpenCL that takes SPIR-V, and what Level Zero asks for.
const ENVIRONMENT: &str = "opencl2.1";

/// Compiles every module, and writes it to its file or compares it with that. Every one has to be valid.
pub(crate) fn run(check: bool) -> Result<(), String> {
    let root = tools::root()?;
    let folder = tools::target()?.join("xtask");
    std::fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let mut stale = Vec::new();
    for &module in spirv::Module::ALL {
        let code = compile(module)?;
        let path = root.join(module.path());
        validate(&folder, module, &code)?;
        // The file as it is now: what this binary embeds may be older.
        let same = std::fs::read(&path).is_ok_and(|tree| tree == code);
        if check && !same {
            stale.push(module.path());
        } else if !same {
            std::fs::write(&path, &code).map_err(|error| format!("{}: {error}", path.display()))?;
        }
        let state = if same { "as it was" } else { "changed" };
        println!("{}: {} bytes, {state}, valid for {ENVIRONMENT}", module.path(), code.len());
    }
    if stale.is_empty() {
        return Ok(());
    }
    let version = first_line(CLANG)?;
    Err(format!("not what the source gives with {version}: {}; run cargo xtask spirv", stale.join(", ")))
}

fn compile(module: spirv::Module) -> Result<Vec<u8>, String> {
    let mut clang = Command::new(CLANG);
    clang.args(spirv::OPTIONS).args(["-Werror", "-Wall", "-emit-llvm", "-c", "-o", "-"]);
    if module.fp64 {
        clang.arg("-DANYACCEL_F64");
    }
    // From standard input: the path of a file would be part of the result.
    let source = opencl::source(module.program).concat();
    let bitcode = filter(clang.arg("-"), source.as_bytes())?;
    filter(Command::new(TRANSLATOR).args(spirv::TRANSLATION).args(["-o", "-"]), &bitcode)
}

fn validate(folder: &Path, module: spirv::Module, code: &[u8]) -> Result<(), String> {
    let name = Path::new(module.path()).file_name().unwrap_or_default();
    let file: PathBuf = folder.join(name);
    std::fs::write(&file, code).map_err(|error| format!("{}: {error}", file.display()))?;
    tools::run(Command::new(VALIDATOR).arg("--target-env").arg(ENVIRONMENT).arg(&file))
}

fn first_line(tool: &str) -> Result<String, String> {
    let said = filter(Command::new(tool).arg("--version"), &[])?;
    Ok(String::from_utf8_lossy(&said).lines().next().unwrap_or_default().to_owned())
}

/// Runs a command from its standard input to its standard output. A warning is no result, what it said is the error.
fn filter(command: &mut Command, input: &[u8]) -> Result<Vec<u8>, String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let failed = |error: std::io::Error| format!("{name} does not run: {error}");
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().map_err(failed)?;
    let pipe = child.stdin.take();
    // From a thread of its own, as a command may write before it has read everything.
    let output = std::thread::scope(|scope| {
        // A command that stops reading says why by its status.
        scope.spawn(move || pipe.map(|mut pipe| pipe.write_all(input).is_ok()));
        child.wait_with_output()
    });
    let output = output.map_err(failed)?;
    if output.status.success() && output.stderr.is_empty() {
        return Ok(output.stdout);
    }
    Err(format!("{name}: {}\n{}", output.status, String::from_utf8_lossy(&output.stderr).trim_end()))
}
