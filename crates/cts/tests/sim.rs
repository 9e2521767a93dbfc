//! The simulated device keeps the contract, whatever order it chooses.

use anyaccel_cts::{Options, Subject, run, subjects};

fn conforms(subject: &Subject, seed: u64) {
    let report = run(subject, &Options { seed, watch: |step| step.print(), ..Options::default() });
    println!("{report}");
    assert!(report.is_ok(), "the simulated device breaks the contract with seed {seed}");
}

/// Random programs against their shadow, with many orders of the streams.
#[test]
fn random_programs_end_as_their_shadow() {
    for seed in 100..112 {
        let options = Options { seed, filter: vec!["programs.*".into()], ..Options::default() };
        let report = run(&subjects::sim_on_look(), &options);
        assert!(report.is_ok() && report.tally().passed == 6, "{report}");
    }
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
