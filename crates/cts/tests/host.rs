//! The host device keeps the contract.

use anyaccel_cts::{Options, run, subjects};

#[test]
fn host_conforms() {
    let filter = std::env::var("F").map(|f| vec![f]).unwrap_or_default();
    let report = run(&subjects::host(), &Options { filter, watch: |case| println!("{}", case.id), ..Options::default() });
    println!("{report}");
    assert!(report.is_ok(), "the host device breaks the contract");
}
