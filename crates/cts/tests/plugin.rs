//! The host device, exported as a plugin and loaded back, keeps the contract as the linked one does: the ABI loses nothing.
//!
//! A program of its own, without the usual harness: it sets the environment before there is another thread, and its cases of
//! forks start it again as a child.

use anyaccel_cts::fork::child_main;
use anyaccel_cts::{Options, Report, Verdict, run, subjects};
use std::path::PathBuf;

/// The library, which Cargo builds before this test, as it depends on it. It is where the test's own binary is, or above.
fn library() -> PathBuf {
    let name = format!("{}anyaccel_host_plugin{}", std::env::consts::DLL_PREFIX, std::env::consts::DLL_SUFFIX);
    let me = std::env::current_exe().expect("this program has a path");
    let found = me.ancestors().skip(1).take(3).map(|folder| folder.join(&name)).find(|path| path.is_file());
    found.unwrap_or_else(|| panic!("{name} is not beside {} nor above it", me.display()))
}

/// How each case ended, in a word.
fn verdicts(report: &Report) -> Vec<(&str, &str)> {
    let word = |verdict: &Verdict| match verdict {
        Verdict::Pass => "pass",
        Verdict::Fail(_) => "fail",
        Verdict::Skip { .. } => "skip",
        Verdict::KnownGap { .. } => "gap",
        Verdict::Stale { .. } => "stale",
    };
    report.cases.iter().map(|case| (case.id.as_str(), word(&case.verdict))).collect()
}

fn main() {
    // SAFETY: this is the first statement of main, so no other thread reads the environment.
    unsafe {
        std::env::set_var("ANYACCEL_HOST_DEVICES", "2");
        std::env::set_var("ANYACCEL_HOST_MEMORY", (192 << 20).to_string());
    }
    child_main(&subjects::all());
    let mut filter: Vec<String> = std::env::args().skip(1).filter(|arg| !arg.starts_with('-')).collect();
    if std::env::args().any(|arg| arg == "--list") {
        println!("plugin: test");
        return;
    }
    if filter.iter().any(|pattern| "plugin".contains(pattern.as_str())) {
        filter.clear();
    }
    let options = Options { filter, child: std::env::current_exe().ok(), ..Options::default() };
    let plugin = subjects::plugin(library()).unwrap_or_else(|error| panic!("{error}"));
    let options = Options { watch: |step| step.print(), ..options };
    let loaded = run(&plugin, &options);
    println!("{loaded}");
    assert!(loaded.is_ok(), "the host device breaks the contract behind the ABI");
    let linked = run(&subjects::host(), &options);
    println!("{linked}");
    assert!(linked.is_ok(), "the host device breaks the contract");
    let (behind, here) = (verdicts(&loaded), verdicts(&linked));
    let differs: Vec<_> = behind.iter().zip(&here).filter(|(behind, here)| behind != here).collect();
    assert!(behind.len() == here.len() && differs.is_empty(), "what applies differs: {differs:?}");
    println!("\nthe suite says the same of the linked and the loaded device");
}
