//! The simulated device keeps the contract, whatever order it chooses.

use anyaccel_cts::{Options, run, subjects};

#[test]
fn sim_conforms() {
    for seed in 1..4 {
        let report = run(&subjects::sim(), &Options { seed, ..Options::default() });
        println!("{report}");
        assert!(report.is_ok(), "the simulated device breaks the contract with seed {seed}");
    }
}
