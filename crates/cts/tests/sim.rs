//! The simulated device keeps the contract, whatever order it chooses.

use anyaccel_cts::{Options, Subject, run, subjects};

fn conforms(subject: &Subject, seed: u64) {
    let report = run(subject, &Options { seed, watch: |case| println!("{}", case.id), ..Options::default() });
    println!("{report}");
    assert!(report.is_ok(), "the simulated device breaks the contract with seed {seed}");
}

#[test]
fn sim_conforms() {
    conforms(&subjects::sim(), 1);
    conforms(&subjects::sim(), 2);
}

#[test]
fn sim_conforms_without_threads() {
    conforms(&subjects::sim_on_look(), 3);
    conforms(&subjects::sim_on_look(), 4);
}
