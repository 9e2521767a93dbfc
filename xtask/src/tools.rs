//! What the chores run: NVIDIA's compilers, in a virtual environment of their own, and commands.

use std::path::{Path, PathBuf};
use std::process::Command;

/// What is installed. The PTX depends on the version of the first alone; the others tell whether it assembles.
const PACKAGES: [&str; 4] = [
    "nvidia-cuda-nvrtc-cu11==11.8.89",
    "nvidia-cuda-nvrtc==13.5.37",
    "nvidia-cuda-nvcc-cu12==12.9.86",
    "nvidia-cuda-nvcc==13.5.37",
];

/// The tools that the recipe uses.
pub(crate) struct Tools {
    /// NVRTC of CUDA 11.8, which writes PTX that old drivers still take.
    pub(crate) nvrtc: PathBuf,
    /// NVRTC of CUDA 13, for tests.
    pub(crate) nvrtc_13: PathBuf,
    /// The assembler of CUDA 12, the last one for chips before Turing.
    pub(crate) ptxas_12: PathBuf,
    /// The assembler of CUDA 13.
    pub(crate) ptxas_13: PathBuf,
}

/// The folder of this workspace.
pub(crate) fn root() -> Result<&'static Path, String> {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().ok_or_else(|| "the workspace has no folder".to_owned())
}

/// The folder that builds go to.
pub(crate) fn target() -> Result<PathBuf, String> {
    let root = root()?;
    Ok(std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from))
}

/// Installs them unless they are there.
pub(crate) fn install() -> Result<Tools, String> {
    let target = target()?;
    let folder = target.join("xtask").join("cuda-tools");
    let (python, note) = (folder.join("bin").join("python"), folder.join("installed"));
    let wanted = PACKAGES.join("\n");
    // The note is written last: a broken installation is made anew.
    if std::fs::read_to_string(&note).is_ok_and(|installed| installed == wanted) {
        return find(&folder);
    }
    eprintln!("installing {} into {}", PACKAGES.join(", "), folder.display());
    run(Command::new("python3").args(["-m", "venv", "--clear"]).arg(&folder))?;
    let mut pip = Command::new(python);
    run(pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check"]).args(PACKAGES))?;
    let tools = find(&folder)?;
    std::fs::write(&note, wanted).map_err(|error| format!("{}: {error}", note.display()))?;
    Ok(tools)
}

fn find(folder: &Path) -> Result<Tools, String> {
    // One folder, named after the version of Python.
    let libraries = std::fs::read_dir(folder.join("lib")).map_err(|error| format!("{}: {error}", folder.display()))?;
    let mut packages = libraries.flatten().map(|entry| entry.path().join("site-packages").join("nvidia"));
    let packages = packages.find(|path| path.is_dir()).ok_or("pip installed no folder named nvidia")?;
    let file = |parts: &str| {
        let path = packages.join(parts);
        if path.is_file() { Ok(path) } else { Err(format!("{} was not installed", path.display())) }
    };
    Ok(Tools {
        nvrtc: file("cuda_nvrtc/lib/libnvrtc.so.11.2")?,
        nvrtc_13: file("cu13/lib/libnvrtc.so.13")?,
        ptxas_12: file("cuda_nvcc/bin/ptxas")?,
        ptxas_13: file("cu13/bin/ptxas")?,
    })
}

/// Runs a command to its end; what it said is the error if it failed.
pub(crate) fn run(command: &mut Command) -> Result<(), String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command.output().map_err(|error| format!("{name} does not run: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    let said = [output.stdout, output.stderr].concat();
    Err(format!("{name}: {}\n{}", output.status, String::from_utf8_lossy(&said).trim_end()))
}
