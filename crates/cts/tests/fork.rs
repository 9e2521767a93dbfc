//! Fork and exit, in processes of their own: this program is its own helper.

use anyaccel_cts::{Ask, Options, Subject, fork, run, subjects};
use anyaccel_hal::Kind;
use std::process::ExitCode;

fn main() -> ExitCode {
    let three = Subject::new(Kind::HOST, |ask| subjects::host().make(&Ask { devices: 3, ..*ask }));
    let every_machine = [subjects::host(), subjects::sim(), three.named("host, three devices")];
    fork::child_main(&every_machine);
    let mut ok = true;
    for subject in every_machine {
        let filter = ["fork.*", "process.*", "random.after-a-fork*"].map(String::from).to_vec();
        let child = std::env::current_exe().ok();
        let report = run(&subject, &Options { filter, child, ..Options::default() });
        println!("{report}");
        ok &= report.is_ok() && (report.absent.is_some() || report.tally().skipped == 0);
    }
    if ok { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
