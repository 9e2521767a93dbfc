//! The host device keeps the contract.

use anyaccel_cts::{Options, run, subjects};

#[test]
fn host_conforms() {
    let report = run(&subjects::host(), &Options { watch: |step| step.print(), ..Options::default() });
    println!("{report}");
    assert!(report.is_ok(), "the host device breaks the contract");
}
