//! The table of cases, a file for each subject.

mod builtins;
mod capabilities;
mod copy;
mod discovery;
mod face;
mod failure;
mod graph;
mod host_fn;
mod kernels;
mod life;
mod marks;
mod memory;
mod order;
mod programs;
mod progress;
mod random;
mod threads;
mod time;
mod wait_host;

pub(crate) use face::{Bent, READS, SETTERS, asked};

use crate::case::Case;
use crate::ways::Way;
use std::sync::LazyLock;

/// Tables of cases, each with the further ways in which its cases are run.
const TABLE: &[(&[Case], &[Way])] = &[
    (discovery::CASES, &[]),
    (memory::CASES, &[]),
    (copy::CASES, CAPTURED),
    (order::CASES, CAPTURED),
    (marks::CASES, CAPTURED),
    (wait_host::CASES, CAPTURED),
    (host_fn::CASES, CAPTURED),
    (progress::CASES, CAPTURED),
    (programs::CASES, CAPTURED),
    (kernels::CASES, CAPTURED),
    (builtins::CASES, CAPTURED),
    (random::CASES, CAPTURED),
    (time::CASES, CAPTURED),
    (threads::CASES, CAPTURED),
    (capabilities::CASES, &[]),
    (graph::CASES, &[]),
    (failure::CASES, &[]),
    (life::CASES, &[]),
];

/// The ways of cases about the work of streams.
const CAPTURED: &[Way] = &[Way::Captured, Way::Recorded];

/// Every case in every way.
static CASES: LazyLock<Vec<Case>> = LazyLock::new(|| {
    let tables = TABLE.iter().chain(face::TABLE);
    tables.flat_map(|(cases, ways)| cases.iter().flat_map(|case| case.in_ways(ways))).collect()
});

/// Every case, in the order in which they are run.
pub fn all() -> impl Iterator<Item = &'static Case> {
    CASES.iter()
}
