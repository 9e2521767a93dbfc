//! Chores of the workspace, as subcommands of `cargo xtask`.

mod nvrtc;
mod ptx;
mod spirv;
mod tools;

use clap::{Parser, Subcommand};
use std::process::ExitCode;

#[derive(Parser)]
#[command(name = "cargo xtask", about = "Chores of the anyaccel workspace")]
struct Arguments {
    #[command(subcommand)]
    chore: Chore,
}

#[derive(Subcommand)]
enum Chore {
    /// Compiles the built-in kernels from CUDA C++ to the PTX of this tree.
    ///
    /// NVIDIA's compiler and assemblers come from PyPI, at the versions named in xtask/src/tools.rs, into a virtual
    /// environment in the target folder; python3 with venv is all that has to be there, and no GPU.
    Ptx {
        /// Writes nothing: fails unless the tree's PTX is what its source gives.
        #[arg(long)]
        check: bool,
    },
    /// Installs the oldest and the newest NVRTC for tests, as `ptx` does, and prints their files.
    Nvrtc,
    /// Compiles the built-in kernels from OpenCL C to the SPIR-V of this tree, and validates it.
    ///
    /// Needs Debian 12's clang-15, llvm-spirv-15 and spirv-tools, and no GPU.
    Spirv {
        /// Writes nothing: fails unless the tree's SPIR-V is what its source gives.
        #[arg(long)]
        check: bool,
    },
}

fn main() -> ExitCode {
    let done = match Arguments::parse().chore {
        Chore::Ptx { check } => ptx::run(check),
        Chore::Nvrtc => tools::install().map(|tools| {
            println!("{}\n{}", tools.nvrtc.display(), tools.nvrtc_13.display());
        }),
        Chore::Spirv { check } => spirv::run(check),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}
