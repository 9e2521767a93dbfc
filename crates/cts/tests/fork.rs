//! Fork and exit, in processes of their own: this program is its own helper.

use anyaccel_cts::{Options, fork, run, subjects};
use std::process::ExitCode;

fn main() -> ExitCode {
    let every_machine = [subjects::host(), subjects::sim()];
    fork::child_main(&every_machine);
    let mut ok = true;
    for subject in every_machine {
        let filter = vec!["fork.*".into(), "process.*".into()];
        let child = std::env::current_exe().ok();
        let report = run(&subject, &Options { filter, child, ..Options::default() });
        println!("{report}");
        ok &= report.is_ok() && (report.absent.is_some() || report.tally().skipped == 0);
    }
    if ok { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
