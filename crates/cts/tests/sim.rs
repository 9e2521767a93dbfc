//! The simulated device keeps the contract, whatever order it chooses.

use anyaccel_cts::{Options, run, subjects};

#[test]
fn sim_conforms() {
    let filter: Vec<String> = std::env::var("F").map(|f| vec![f]).unwrap_or_default();
    for seed in 1..4 {
        let report = run(&subjects::sim(), &Options { seed, filter: filter.clone(), watch: |case| println!("{}", case.id),..Options::default() });
        println!("{report}");
        assert!(report.is_ok(), "the simulated device breaks the contract with seed {seed}");
    }
}

#[test]
fn sim_conforms_on_look() {
    let filter: Vec<String> = std::env::var("G").map(|f| vec![f]).unwrap_or_default();
    for seed in 1..4 {
        let report = run(&subjects::sim_on_look(), &Options { seed, filter: filter.clone(), watch: |case| println!("{}", case.id), ..Options::default() });
        println!("{report}");
        assert!(report.is_ok(), "the simulated device breaks the contract with seed {seed}");
    }
}
