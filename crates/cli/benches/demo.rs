//! The main job against one thread: `anyaccel demo` on a file in the page cache, beside its own check, which reads the
//! same way and counts with the same function.
//!
//! ```text
//! cargo bench -p anyaccel-cli
//! cargo bench -p anyaccel-cli -- --streams 2 --chunk 1M     # more arguments go to the demo
//! ANYACCEL_BENCH_MIB=256 cargo bench -p anyaccel-cli
//! ```
//!
//! Each run gives a pair of times. *best* compares the shortest pass with the shortest check of all runs, *median* is the
//! median of the runs' own ratios. On one core the device has to do with what the thread has, and pays for its copies and
//! wake-ups; 0.8 is the least that it should reach. On two cores it should be faster than the thread.

use serde_json::Value;
use std::fs::File;
use std::io::{BufWriter, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

const RUNS: usize = 9;

/// A file that is gone when dropped.
struct Data(PathBuf);

impl Data {
    /// Bytes that don't repeat, since runs of equal bytes are counted faster.
    fn write(mib: usize) -> std::io::Result<Self> {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("demo-bench-{}", std::process::id()));
        let data = Self(path);
        let mut file = BufWriter::with_capacity(1 << 20, File::create(&data.0)?);
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        for _ in 0..mib << 17 {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            file.write_all(&state.to_le_bytes())?;
        }
        file.flush()?;
        Ok(data)
    }

    /// Brings it into the page cache.
    fn warm(&self) -> std::io::Result<()> {
        let (mut file, mut block) = (File::open(&self.0)?, vec![0; 1 << 20]);
        while file.read(&mut block)? > 0 {}
        Ok(())
    }
}

impl Drop for Data {
    fn drop(&mut self) {
        let _left_behind = std::fs::remove_file(&self.0);
    }
}

/// Seconds of the pass through the device and of the check.
fn run(cpus: Option<&str>, file: &Path, more: &[String]) -> Result<(f64, f64), String> {
    let program = env!("CARGO_BIN_EXE_anyaccel");
    let mut command = match cpus {
        Some(cpus) => {
            let mut command = Command::new("taskset");
            command.args(["-c", cpus, program]);
            command
        }
        None => Command::new(program),
    };
    command.args(["demo", "--backend", "host", "--json"]).arg(file).args(more);
    let output = command.output().map_err(|error| format!("{command:?}: {error}"))?;
    if !output.status.success() {
        return Err(format!("{command:?}: {}", String::from_utf8_lossy(&output.stderr)));
    }
    let document: Value = serde_json::from_slice(&output.stdout).map_err(|error| error.to_string())?;
    let seconds = |pointer: &str| document.pointer(pointer).and_then(Value::as_f64).ok_or("no time in the document");
    Ok((seconds("/pass/seconds")?, seconds("/check/seconds")?))
}

fn measure(label: &str, cpus: Option<&str>, file: &Path, bytes: f64, more: &[String]) -> Result<(), String> {
    let pairs = (0..RUNS).map(|_| run(cpus, file, more)).collect::<Result<Vec<_>, _>>()?;
    let best = |of: fn(&(f64, f64)) -> f64| pairs.iter().map(of).fold(f64::INFINITY, f64::min);
    let (pass, check) = (best(|pair| pair.0), best(|pair| pair.1));
    let mut ratios: Vec<f64> = pairs.iter().map(|(pass, check)| check / pass).collect();
    ratios.sort_by(f64::total_cmp);
    let speed = |seconds: f64| bytes / seconds / f64::from(1 << 30);
    println!(
        "{label:<10} device {:5.2} GiB/s   one thread {:5.2} GiB/s   ratio: best {:4.2}, median {:4.2}",
        speed(pass),
        speed(check),
        check / pass,
        ratios[ratios.len() / 2],
    );
    Ok(())
}

fn all(more: &[String]) -> Result<(), String> {
    let mib = match std::env::var("ANYACCEL_BENCH_MIB") {
        Ok(mib) => mib.parse().map_err(|_| format!("ANYACCEL_BENCH_MIB='{mib}': expected a number"))?,
        Err(_) => 1024,
    };
    let data = Data::write(mib).and_then(|data| data.warm().map(|()| data)).map_err(|error| error.to_string())?;
    println!("demo on a file of {mib} MiB in the page cache, {RUNS} runs");
    let bytes = (mib << 20) as f64;
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    if Command::new("taskset").arg("--version").output().is_ok() {
        measure("1 core", Some("0"), &data.0, bytes, more)?;
        if cores > 1 {
            measure("2 cores", Some("0,1"), &data.0, bytes, more)?;
        }
    } else {
        println!("without taskset there is no measurement on one core");
    }
    if cores > 2 {
        measure(&format!("{cores} cores"), None, &data.0, bytes, more)?;
    }
    Ok(())
}

fn main() -> ExitCode {
    let more: Vec<String> = std::env::args().skip(1).filter(|argument| argument != "--bench").collect();
    match all(&more) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}
