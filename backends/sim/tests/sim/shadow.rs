//! Random programs against the shadow model of stream order, under every kind of interleaving.

use anyaccel_hal::{Device, Driver};
use anyaccel_sim::shadow::{Observed, Program, Shape};
use anyaccel_sim::{Execution, Interleaving, Sim, SimConfig};
use proptest::prelude::*;
use std::sync::Arc;

const SHAPE: Shape = Shape { devices: 2, streams: 3, cells: 3 };

fn open(config: SimConfig) -> (Sim, Vec<Arc<dyn Device>>) {
    let sim = config.memories([1 << 20; SHAPE.devices]).build();
    let driver = sim.driver();
    let count = driver.start().unwrap();
    let devices = (0..count).map(|ordinal| driver.open(ordinal).unwrap()).collect();
    (sim, devices)
}

fn interleaving() -> impl Strategy<Value = Interleaving> {
    prop_oneof![
        6 => any::<u64>().prop_map(Interleaving::Seeded),
        1 => Just(Interleaving::Eager),
        1 => Just(Interleaving::RoundRobin),
        1 => Just(Interleaving::ByTime),
        1 => Just(Interleaving::Manual),
        2 => prop::collection::vec(0..SHAPE.devices * SHAPE.streams, 0..200).prop_map(Interleaving::Picks),
    ]
}

fn program() -> impl Strategy<Value = Program> {
    prop::collection::vec(any::<[u8; 4]>(), 0..80).prop_map(|bytes| Program::decode(SHAPE, &bytes))
}

/// The order in which the program's effects ran, by stream, without the first writes and the last reads.
fn ran(sim: &Sim, program: &Program) -> Vec<usize> {
    let streams = sim.streams();
    let effects = ["copy", "fill", "write"];
    let executed = sim.executed();
    let all: Vec<usize> = executed
        .iter()
        .filter(|executed| effects.contains(&executed.what))
        .map(|executed| streams.iter().position(|&stream| stream == executed.stream).unwrap())
        .collect();
    all[program.cells()..all.len() - program.cells()].to_vec()
}

fn run(config: SimConfig, program: &Program) -> (Sim, Observed) {
    let (sim, devices) = open(config.log(10_000));
    let observed = program.run(&devices).unwrap();
    assert!((0..2).all(|ordinal| sim.live(ordinal).total() == 0));
    (sim, observed)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn what_racing_programs_compute_is_allowed_and_is_what_ran(program in program(), interleaving in interleaving()) {
        let (sim, observed) = run(SimConfig::new().interleaving(interleaving).strict(false), &program);
        prop_assert_eq!(program.outcomes().check(&observed), Ok(()));
        prop_assert_eq!(program.replay(ran(&sim, &program)), Ok(observed));
        prop_assert_eq!(sim.violations(), []);
    }

    #[test]
    fn programs_without_races_compute_one_thing_and_break_no_rule(program in program(), interleaving in interleaving()) {
        let program = program.without_races();
        let (sim, observed) = run(SimConfig::new().interleaving(interleaving), &program);
        let outcomes = program.outcomes();
        prop_assert!(outcomes.cells.iter().chain(&outcomes.reads).all(|values| values.len() == 1));
        prop_assert_eq!(outcomes.check(&observed), Ok(()));
        prop_assert_eq!(sim.violations(), []);
    }

    #[test]
    fn races_are_found_whatever_the_interleaving(program in program(), interleaving in interleaving()) {
        let program = program.without_polls();
        let (sim, _) = run(SimConfig::new().interleaving(interleaving), &program);
        let found = sim.violations().iter().any(|violation| violation.rule == "race");
        prop_assert_eq!(found, program.without_races() != program);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn the_background_keeps_the_same_order(program in program(), seed in any::<u64>()) {
        let config = SimConfig::new().interleaving(Interleaving::Seeded(seed)).execution(Execution::Background);
        let (sim, observed) = run(config.strict(false), &program);
        prop_assert_eq!(program.outcomes().check(&observed), Ok(()));
        prop_assert_eq!(program.replay(ran(&sim, &program)), Ok(observed));
    }
}

#[test]
fn seeds_reach_different_outcomes() {
    let bytes: Vec<[u8; 4]> = (0..6).flat_map(|stream| [[0, stream, 0, 0], [4, stream, 1, 1]]).collect();
    let program = Program::decode(SHAPE, &bytes);
    let outcomes: std::collections::BTreeSet<_> = (0..100)
        .map(|seed| run(SimConfig::new().interleaving(Interleaving::Seeded(seed)).strict(false), &program).1.cells)
        .collect();
    assert!(outcomes.len() > 5, "{}", outcomes.len());
}
