//! From CUDA C++ to the PTX of this tree.

use crate::nvrtc::Nvrtc;
use crate::tools::{self, Tools};
use anyaccel_kernels::device::{Program, cuda};
use std::path::Path;
use std::process::Command;

/// Chips that the PTX has to assemble for, by the assembler of CUDA 12 and by that of CUDA 13.
const CHIPS_12: [&str; 2] = ["sm_60", "sm_70"];
const CHIPS_13: [&str; 4] = ["sm_75", "sm_80", "sm_90", "sm_120"];

/// Compiles every program, and writes it to its file or compares it with that. Every one has to assemble.
pub(crate) fn run(check: bool) -> Result<(), String> {
    let (root, target) = (tools::root()?, tools::target()?);
    let tools = tools::install()?;
    let nvrtc = Nvrtc::load(&tools.nvrtc)?;
    let mut stale = Vec::new();
    for &program in Program::ALL {
        let ptx = nvrtc.compile(program.name(), &cuda::source(program).concat(), cuda::OPTIONS)?;
        let path = root.join(cuda::ptx_path(program));
        // The file as it is now: what this binary embeds may be older.
        let same = std::fs::read_to_string(&path).is_ok_and(|tree| tree == ptx);
        if check && !same {
            stale.push(cuda::ptx_path(program));
        } else if !same {
            std::fs::write(&path, &ptx).map_err(|error| format!("{}: {error}", path.display()))?;
        }
        assemble(&tools, &target, program, &ptx)?;
        let state = if same { "as it was" } else { "changed" };
        println!(
            "{}: {} bytes, {state}, assembles for {}",
            program.name(),
            ptx.len(),
            chips().collect::<Vec<_>>().join(" ")
        );
    }
    if stale.is_empty() {
        return Ok(());
    }
    Err(format!("not what the source gives: {}; run cargo xtask ptx", stale.join(", ")))
}

fn chips() -> impl Iterator<Item = &'static str> {
    CHIPS_12.into_iter().chain(CHIPS_13)
}

fn assemble(tools: &Tools, target: &Path, program: Program, ptx: &str) -> Result<(), String> {
    let folder = target.join("xtask");
    let (input, output) = (folder.join(format!("{}.ptx", program.name())), folder.join("discarded.cubin"));
    std::fs::write(&input, ptx).map_err(|error| format!("{}: {error}", input.display()))?;
    for chip in chips() {
        let ptxas = if CHIPS_12.contains(&chip) { &tools.ptxas_12 } else { &tools.ptxas_13 };
        let mut command = Command::new(ptxas);
        command.arg(format!("--gpu-name={chip}")).arg(&input).arg("--output-file").arg(&output);
        tools::run(&mut command).map_err(|error| format!("{} for {chip}: {error}", program.name()))?;
    }
    Ok(())
}
