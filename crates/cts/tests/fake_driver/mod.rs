//! The suite on a backend over its fake driver, in a process that was told by variables where the fake is.

use anyaccel_cts::{Options, Step, Subject, fork, run};
use anyaccel_fake::library::Control;
use anyaccel_hal::Kind;
use std::env;
use std::process::ExitCode;
use std::time::Duration;

/// What the program's arguments choose of the suite.
pub(crate) fn filter() -> Vec<String> {
    env::args().skip(1).filter(|arg| !arg.starts_with('-')).collect()
}

/// Runs the suite on the backend with a way to lose its devices. A lost card is healed before the next driver is made, for which
/// a real one needs a new process.
pub(crate) fn conforms(subject: Subject, kind: Kind, control: Option<Control>, way: &str) -> ExitCode {
    let here = std::process::id();
    let subject = subject.remade(move |made| {
        // A child of a fork has no devices to heal, and the fake's locks as threads of its parent held them.
        let Some(control) = control.filter(|_| std::process::id() == here) else { return made };
        control.heal();
        made.loses(move |ordinal| control.lose(ordinal))
    });
    let subject = subject.named(kind.name());
    fork::child_main(std::slice::from_ref(&subject));
    let child = env::current_exe().ok();
    let verbose = env::var_os("ANYACCEL_CTS_VERBOSE").is_some();
    let watch: fn(Step<'_>) = if verbose { |step| step.print() } else { |_| () };
    // A case that fails in the middle may leave a hold behind that memory is waited for with, here as on a card: what is merely
    // slow must not end so.
    let timeout = Duration::from_secs(120);
    let options = Options { filter: filter(), child, require: vec![kind], watch, timeout, ..Options::default() };
    let report = run(&subject, &options);
    println!("{way}: {report}");
    if report.is_ok() && report.absent.is_none() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
